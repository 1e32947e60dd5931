"""Choose the error that every rank raises where the headers of a call differ."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mpistrat.collectives.checking.mismatch_message import mismatch_text
from mpistrat.collectives.health.rank_names import RankNames
from mpistrat.errors import BackendUnavailableError, MismatchError, MpistratError, PeerLostError
from mpistrat.types import Array

__all__ = ["difference_error", "failed_alone", "memory_error"]


def failed_alone(failures: Array) -> list[int]:
    """Return the ranks that failed more often than others; `failures` counts by rank."""
    return np.flatnonzero(failures > failures.min()).tolist()


def memory_error(calls: Mapping[int, str], names: RankNames) -> BackendUnavailableError:
    """Return the error of calls for which some GPU has not enough memory.

    Parameters
    ----------
    calls
        What each rank called, or which problem it has.
    names
        How to name the ranks.
    """
    rows = [f"  rank {names.of(rank)}: {call}" for rank, call in calls.items()]
    return BackendUnavailableError("\n".join(["not enough memory on GPUs for a call:", *rows]))


def difference_error(
    calls: dict[int, str], failures: Array, rank: int, my_failures: int, names: RankNames
) -> MpistratError:
    """Return the error of calls that differ, or that one rank comes to after it failed alone.

    Parameters
    ----------
    calls
        What each rank called.
    failures
        How many calls have failed on each rank, by the headers.
    rank
        This one.
    my_failures
        How many calls have failed on this rank.
    names
        How to name the ranks.
    """
    message = mismatch_text(calls, rank, failed_alone(failures), names)
    worst = int(failures.argmax())
    if failures[worst] > my_failures:  # so the calls differ because of it
        text = f"rank {names.of(worst)} failed alone:\n{message}"
        return PeerLostError(text, worst, names.world_rank(worst))
    return MismatchError(message, calls)
