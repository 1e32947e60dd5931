"""`CallQueue`: the interface of the two queues of calls, one without order and one of rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mpistrat.coordinator.chief.scheduled_call import Call
from mpistrat.coordinator.chief.worker_state import WorkerState
from mpistrat.ps.transport.roles import Member

__all__ = ["CallQueue"]


class CallQueue(Protocol):
    """Calls that any worker may run and that none has; says which a worker gets next.

    What has come of a call is seen in its `RemoteValue`. The caller holds the dispatcher's lock.
    """

    @property
    def has_waiting_call(self) -> bool:
        """Whether there is a call that no worker has."""

    @property
    def has_startable_call(self) -> bool:
        """Whether a worker may get a call now, as far as that is known without `take_for`."""

    @property
    def affects_all_workers(self) -> bool:
        """Whether a new or a finished call may let any worker begin one, not only one of them."""

    @property
    def irreplaceable_loss(self) -> Member | None:
        """A worker that has ended and whose calls no other can run, or None."""

    def add(self, call: Call) -> None:
        """Take in a new call."""

    def put_back(self, calls: Sequence[Call]) -> None:
        """Take in calls that were begun by a worker that has ended."""

    def drop(self) -> list[Call]:
        """Forget the calls that no worker has, and return them."""

    def take_for(self, worker: WorkerState, chosen: Sequence[Call]) -> Call | None:
        """Return a call for a worker, beside those chosen just now; None if it gets none."""
