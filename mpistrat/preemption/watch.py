"""End a process that has not ended by itself when the time after a signal is over."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time

from mpistrat.cluster import mpi
from mpistrat.collectives import Communicator
from mpistrat.collectives.checking.call_site import caller
from mpistrat.preemption import outcome
from mpistrat.preemption.signals import SignalNotes, name_of
from mpistrat.preemption.time_left import Leads
from mpistrat.system.program_end import standard_output

__all__ = ["STATUS", "Watch"]

STATUS = os.EX_TEMPFAIL
"""The exit status of a process that is ended here: it is to be started again."""

_TICK_S = 1.0  # between looks for what cannot wake the thread
_TURN_S = 1.0  # rank 0 speaks and ends the job; the others only if it does not
_FLUSH_S, _ABORT_S = 0.5, 2.0


class Watch:
    """A thread that sleeps until a signal comes, and then until the deadline.

    It needs no Python code to run in the main thread, which may wait in MPI for ever.

    Parameters
    ----------
    notes
        Where the signals are noted.
    leads
        From which the deadline follows.
    communicator
        Of the ranks that stop together, to ask what they do.
    """

    def __init__(self, notes: SignalNotes, leads: Leads, communicator: Communicator) -> None:
        self._notes, self._leads, self._communicator = notes, leads, communicator
        self._agreed = math.inf
        self._is_closed = False
        # A daemon: it never keeps the program from ending, and guards that end, too.
        self._thread = threading.Thread(target=self._run, name="mpistrat preemption", daemon=True)
        self._thread.start()

    @property
    def deadline(self) -> float:
        """When this process should have ended, in seconds since 1970; infinity for never."""
        came = [self._leads.deadline(*one) for one in list(self._notes.came.items())]
        return min([self._agreed, *came])

    def agree(self, deadline: float) -> None:
        """Take in the deadline of another rank, which is perhaps the only one with a signal."""
        self._agreed = min(self._agreed, deadline)
        self._notes.wake()

    def close(self) -> None:
        """End the thread. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._notes.wake()
            self._thread.join()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread's
        turn_s = 0.0 if self._communicator.rank == 0 else _TURN_S
        while not self._is_closed:
            left_s = self.deadline + turn_s - time.time()
            if left_s <= 0:
                self._end()
            self._notes.wait(min(left_s, _TICK_S))

    def _end(self) -> None:
        """Say what this process waits for, ask for a restart, and end the job."""
        # First, as all else may take longer than the batch system leaves.
        outcome.leave(outcome.REQUEUE)
        # A second thread for the end that is certain: MPI_Abort may wait for the main one.
        threading.Thread(target=_end_for_sure, daemon=True).start()
        sys.stderr.write(f"[mpistrat] {self._message()}\n")
        standard_output.wait_until_read(_FLUSH_S)
        try:
            if "mpi4py.MPI" in sys.modules:
                mpi.abort(STATUS)
        finally:
            os._exit(STATUS)

    def _message(self) -> str:
        rank, size = self._communicator.rank, self._communicator.size
        return (
            f"rank {rank}/{size} has not stopped in time {self._why()}: the job ends with status"
            f" {STATUS}, to be started again (REQUEUE) from the last complete checkpoint. This"
            f" rank is at {_place()}{self._others()}"
        )

    def _why(self) -> str:
        """Return the signals that have come, in words."""
        came = sorted(self._notes.came.items(), key=lambda one: one[1])
        if not came:
            return "after a signal to another rank"
        names = " and ".join(name_of(number) for number, _ in came)
        return f"({time.time() - came[0][1]:.0f} s after {names})"

    def _others(self) -> str:
        """Return where the other ranks are, of which this one waits for some."""
        asking = self._communicator.health.stacks
        others = [one for one in range(self._communicator.size) if one != self._communicator.rank]
        return "" if asking is None else asking.ask(others)


def _place() -> str:
    """Return the line of the program that the main thread is at."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "its end" if frame is None else caller(frame)


def _end_for_sure() -> None:
    time.sleep(_FLUSH_S + 2 * _ABORT_S)
    os._exit(STATUS)
