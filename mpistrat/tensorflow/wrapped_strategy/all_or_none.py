"""Raise on all ranks what fails on one, with its class, before they begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpistrat import config, errors
from mpistrat.collectives import Communicator

__all__ = ["together"]


def together(
    communicator: Communicator, call: Callable[[], Any], what: str, may_last_s: float = 0.0
) -> list[Any]:
    """Return what `call` returns on each rank, by rank; or raise on all.

    Parameters
    ----------
    communicator
        Between the ranks; closed if a call fails.
    call
        What this rank does. Its result has to be plain data.
    what
        It, in words.
    may_last_s
        How long a rank may take for it. The others wait for MPISTRAT_TIMEOUT seconds more.

    Raises
    ------
    Exception
        On ranks whose call fails: its error. On the others: that of the first of those, as the
        same class of `mpistrat.errors`; what is none of these is a ClusterError there.

    Notes
    -----
    **Collective.**
    """
    mine: Exception | None = None
    result = None
    try:
        result = call()
    except Exception as error:  # noqa: BLE001 - raised below, once the others know
        mine = error
    except BaseException as error:
        communicator.fail(error)
        raise
    told = None if mine is None else _as_data(mine)
    patience = config.timeout_s() + may_last_s
    found = communicator.allgather_object((result, told), timeout=patience)
    failed = {rank: told for rank, (_, told) in enumerate(found) if told is not None}
    if not failed:
        return [result for result, _ in found]
    communicator.close()  # all ranks raise it
    if mine is not None:
        raise mine
    rank, (kind, text) = next(iter(failed.items()))
    cause = errors.MpistratError(f"rank {rank}/{communicator.size} raised this in {what}")
    raise getattr(errors, kind)(text) from cause


def _as_data(error: Exception) -> tuple[str, str]:
    """Return the name of a class of ours, and a text: what can be sent of any error."""
    for kind in type(error).__mro__:
        if kind.__module__ == errors.__name__:
            return kind.__name__, str(error)
    return errors.ClusterError.__name__, f"{type(error).__name__}: {error}"
