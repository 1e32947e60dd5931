"""The asynchronous queue: any worker takes the oldest call, within a bound of staleness."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mpistrat.coordinator.chief.scheduled_call import Call
from mpistrat.coordinator.chief.worker_state import WorkerState

__all__ = ["UnorderedQueue"]


class UnorderedQueue:
    """Calls that wait for a worker, in the order in which they were scheduled; a `CallQueue`.

    Parameters
    ----------
    workers
        Those of the job; calls that they have begun bound what begins next.
    max_staleness
        How many calls before it a call may run beside, or None for any number.
    """

    irreplaceable_loss = None  # any worker can run any call

    def __init__(self, workers: Sequence[WorkerState], max_staleness: int | None) -> None:
        self._workers = workers
        self._max_staleness = max_staleness
        self._pending: deque[Call] = deque()
        self._put_back: list[Call] = []  # calls that were; those that have finished leave late
        self._last = 0
        self._is_blocked = False  # the next call needs a result that is not there

    @property
    def affects_all_workers(self) -> bool:
        """Whether a new or a finished call may let any worker begin one."""
        return self._is_blocked or self._max_staleness is not None

    @property
    def has_waiting_call(self) -> bool:
        """Whether there is a call that no worker has."""
        return bool(self._pending)

    @property
    def has_startable_call(self) -> bool:
        """Whether there is a call that no worker has: `take_for` looks whether it may begin."""
        return bool(self._pending)

    def add(self, call: Call) -> None:
        """Take in a new call."""
        self._last += 1
        call.order = self._last
        self._pending.append(call)

    def put_back(self, calls: Sequence[Call]) -> None:
        """Take in calls that were begun by a worker that has ended; they begin before others."""
        if self._max_staleness is not None:
            self._put_back += calls
        self._pending.extendleft(reversed(calls))

    def drop(self) -> list[Call]:
        """Forget the calls that have not begun, and return them."""
        dropped = [*self._pending]
        self._pending.clear()
        return dropped

    def take_for(self, worker: WorkerState, chosen: Sequence[Call]) -> Call | None:
        """Return a call for a worker, beside those chosen just now; None if it gets none."""
        del worker  # all are alike
        if not self._pending or not self._may_begin(chosen):
            return None
        self._is_blocked = not self._pending[0].is_ready
        if self._is_blocked:
            return None
        return self._pending.popleft()

    def _may_begin(self, chosen: Sequence[Call]) -> bool:
        """Return whether the next call may run beside those that have not finished."""
        if self._max_staleness is None:
            return True
        # One that was put back may be behind younger calls on its new worker, or wait here still.
        self._put_back = [call for call in self._put_back if not call.value.is_done]
        under_way = [*(worker.oldest for worker in self._workers), *chosen, *self._put_back]
        orders = [call.order for call in under_way if call is not None and not call.is_own]
        following = self._pending[0].order
        return following - min(orders, default=following) <= self._max_staleness
