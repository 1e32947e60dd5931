"""Split an MPI communicator with a deadline; MPI_Comm_split has none."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from mpistrat.errors import CommunicationTimeoutError

__all__ = ["split"]


def split(comm: Any, color: int, timeout: float, may_thread: bool) -> Any:
    """Return the mpi4py communicator of the ranks that give the same `color`. **Collective.**

    Parameters
    ----------
    comm
        An mpi4py communicator; the ranks keep their order.
    color
        As in MPI, MPI_UNDEFINED too.
    timeout
        Seconds to wait for the others.
    may_thread
        Whether MPI allows calls of several threads. Without, nobody can leave the call, and at
        the deadline the process ends.

    Raises
    ------
    CommunicationTimeoutError
        The deadline passed. MPI's call is left behind in a thread, so the program can only end.
    """
    complaint = (
        f"rank {comm.rank}/{comm.size} waited {timeout:.0f} s for all ranks to divide themselves"
        " by nodes, as they make this strategy or communicator; look what the others do"
    )
    # Python raises OverflowError for longer ones.
    timeout = min(timeout, threading.TIMEOUT_MAX)
    if not may_thread:
        watchdog = threading.Timer(timeout, _end, [complaint])
        watchdog.daemon = True
        watchdog.start()
        try:
            return comm.Split(color, comm.rank)
        finally:
            watchdog.cancel()
    call = _Call(lambda: comm.Split(color, comm.rank))
    call.join(timeout)
    if call.is_alive():
        raise CommunicationTimeoutError(complaint)
    if call.error is not None:
        raise call.error
    return call.result


class _Call(threading.Thread):
    """A call in a thread of its own, which keeps no program from its end."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(name="mpistrat split", daemon=True)
        self._function = function
        self.result: Any = None
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._function()
        except Exception as error:  # noqa: BLE001 - raised again by whoever waits
            self.error = error


def _end(complaint: str) -> None:
    """End this process, and so the job: the launcher sees that it ended with an error."""
    sys.stdout.flush()
    sys.stderr.write(f"[mpistrat] {complaint}\n")
    sys.stderr.flush()
    # The main thread is inside of MPI_Comm_split, and would not see an exception.
    os._exit(1)
