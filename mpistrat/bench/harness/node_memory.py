"""Refuse what the memory of a machine does not hold for all of its ranks."""

from __future__ import annotations

from mpistrat import Communicator
from mpistrat.bench.training_step.memory import available_bytes
from mpistrat.errors import UsageError

__all__ = ["check_node_memory"]


def check_node_memory(what: str, nbytes: int, advice: str, communicator: Communicator) -> None:
    """Raise on all ranks if one of their machines has not enough memory. **Collective.**

    Parameters
    ----------
    what
        What needs memory, to begin the message with.
    nbytes
        How much each rank needs; the same on all ranks.
    advice
        How to need less.
    communicator
        Of the ranks.

    Raises
    ------
    UsageError
        The message has what is needed and what there is.
    """
    ranks = communicator.topology.local_size
    mine = nbytes * ranks, available_bytes()
    for rank, (needed, free) in enumerate(communicator.allgather_object(mine)):
        if free is not None and free < needed:
            raise UsageError(
                f"{what} need {needed / 1e9:.2f} GB on the machine of rank {rank},"
                f" {nbytes / 1e9:.2f} GB for each of its {needed // max(nbytes, 1)} ranks;"
                f" available: {free / 1e9:.2f} GB; {advice}, or start fewer ranks a machine"
            )
