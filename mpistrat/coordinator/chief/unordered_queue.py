"""The asynchronous queue: any worker takes the oldest call, within a bound of staleness."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mpistrat.coordinator.chief.scheduled_call import Call, WorkerState

__all__ = ["UnorderedQueue"]


class UnorderedQueue:
    """Calls that wait for a worker, in the order in which they were scheduled.

    Parameters
    ----------
    workers
        Who may have begun some.
    max_staleness
        How many calls before it a call may run beside, or None for any number.
    """

    def __init__(self, workers: Sequence[WorkerState], max_staleness: int | None) -> None:
        self._workers = workers
        self.max_staleness = max_staleness
        self._pending: deque[Call] = deque()
        self._last = 0
        self._is_blocked = False  # the next call needs a result that is not there

    is_open = False  # there are no rounds
    stranded = None  # any worker stands in for any other

    @property
    def concerns_all(self) -> bool:
        """Whether a call that has finished, or has come, may let any worker begin one."""
        return self._is_blocked or self.max_staleness is not None

    @property
    def has_waiting(self) -> bool:
        """Whether there is a call that no worker has."""
        return bool(self._pending)

    @property
    def may_give(self) -> bool:
        """Whether a worker may get a call now."""
        return bool(self._pending)

    def add(self, call: Call) -> None:
        """Take in a new call."""
        self._last += 1
        call.order = self._last
        self._pending.append(call)

    def put_back(self, calls: Sequence[Call]) -> None:
        """Take in calls that were begun by a worker that has ended."""
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

    def note(self, call: Call, number: int, is_good: bool) -> None:
        """Take note of nothing: a call that has finished is forgotten."""

    def want_end(self) -> None:
        """Do nothing: what has run is done."""

    def complete(self) -> list[int] | None:
        """Return None: there are no rounds."""
        return None

    def go_on(self) -> None:
        """Do nothing."""

    def _may_begin(self, chosen: Sequence[Call]) -> bool:
        """Tell whether the next call may run beside those that have not finished."""
        if self.max_staleness is None:
            return True
        under_way = [*(worker.oldest for worker in self._workers), *chosen]
        orders = [call.order for call in under_way if call is not None and not call.is_own]
        following = self._pending[0].order
        return following - min(orders, default=following) <= self.max_staleness
