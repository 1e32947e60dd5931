"""A worker as the chief sees it: the calls that it has, and how many more it may be sent."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from mpistrat.coordinator.chief.scheduled_call import Call
from mpistrat.coordinator.shipping import Function
from mpistrat.ps.transport.roles import Member
from mpistrat.ps.transport.stream import Stream

__all__ = ["WorkerState"]

_AHEAD_S = 0.002  # how much work a worker is given beyond what it is doing
_MOST_AHEAD = 256  # calls
_MOST_BYTES = 32 << 20
_SHARE = 0.2  # of a new measurement in the average


@dataclass(slots=True, eq=False)
class WorkerState:
    """A worker, and what the chief has sent it.

    Attributes
    ----------
    own
        Calls that only this worker can run.
    sent
        Calls that it was sent and has not finished, by their numbers, in the order in which
        it runs them.
    known
        Numbers of the functions that it has.
    dropped_functions, dropped_resources
        Numbers of what it may forget. Finalizers append to them at any time, without a lock.
    average_s
        How long its functions took lately; None before the first has finished.
    since
        When it was last seen to finish something, or to be given work after having none.
    """

    member: Member
    stream: Stream
    own: deque[Call] = field(default_factory=deque)
    sent: dict[int, Call] = field(default_factory=dict)
    sent_bytes: int = 0
    known: set[int] = field(default_factory=set)
    dropped_functions: deque[int] = field(default_factory=deque)
    dropped_resources: deque[int] = field(default_factory=deque)
    average_s: float | None = None
    since: float = 0.0
    is_lost: bool = False

    @property
    def oldest(self) -> Call | None:
        """The first call that it has, of those that any worker could run.

        It has no older one, but for those that a lost worker began (`UnorderedQueue.put_back`).
        """
        return next((call for call in self.sent.values() if not call.is_own), None)

    @property
    def most(self) -> int:
        """How many calls it may have.

        So few that long ones find a free worker, but no fewer than keep it busy until the chief
        hears that they are done.
        """
        if self.average_s is None:
            return 1
        return 1 + min(_MOST_AHEAD, int(_AHEAD_S / max(self.average_s, 1e-6)))

    @property
    def room(self) -> int:
        """How many more calls it may be sent now."""
        if self.is_lost or self.sent_bytes > _MOST_BYTES:
            return 0
        return self.most - len(self.sent)

    def take_finished(self, call_number: int) -> Call | None:
        """Take a call off the list of those that it has; None if it is not there."""
        call = self.sent.pop(call_number, None)
        if call is not None:
            self.sent_bytes -= len(call.packed_for(self.member.task_id))
            self.since = time.monotonic()
        return call

    def take_dropped(self) -> tuple[list[int], list[int]]:
        """Return which functions and resources it drops before it runs the next calls."""
        if not (self.dropped_functions or self.dropped_resources):
            return [], []
        functions, resources = _emptied(self.dropped_functions), _emptied(self.dropped_resources)
        self.known.difference_update(functions)
        return functions, resources

    def learn_function(self, function: Function) -> None:
        """Note that the worker is sent a function."""
        self.known.add(function.number)
        if function.is_dropped:  # its call was waiting when it was dropped
            self.dropped_functions.append(function.number)

    def learn(self, average_s: float) -> None:
        """Take in how long its functions take."""
        old = self.average_s
        self.average_s = average_s if old is None else old + _SHARE * (average_s - old)


def _emptied(numbers: deque[int]) -> list[int]:
    """Return what is in a deque, to which other threads may append meanwhile, and remove it."""
    found = []
    while numbers:
        found.append(numbers.popleft())
    return found
