"""Make a communicator of this process alone, for strategies that keep to one process."""

from __future__ import annotations

from mpistrat.collectives.backends.threads import ThreadComm, ThreadWorld
from mpistrat.collectives.communicator import Communicator

__all__ = ["single_process_communicator"]


def single_process_communicator() -> Communicator:
    """Return a communicator with one rank, this process, whatever launcher started it. **Local.**

    It starts no MPI: a world of one thread is enough where nothing is sent.
    """
    return Communicator(ThreadComm(ThreadWorld(1), 0), "threads")
