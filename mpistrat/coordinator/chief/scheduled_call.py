"""Scheduled calls, and how many of them a worker is given ahead."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from mpistrat.coordinator.arguments import Arguments
from mpistrat.coordinator.remote_value import RemoteValue
from mpistrat.coordinator.shipping import Function
from mpistrat.ps.transport.roles import Member
from mpistrat.ps.transport.stream import Stream

__all__ = ["Call", "WorkerState"]

_AHEAD_S = 0.002  # how much work a worker is given beyond what it is doing
_MOST_AHEAD = 256  # calls
_MOST_BYTES = 32 << 20
_SHARE = 0.2  # of a new measurement in the average


@dataclass(slots=True, eq=False)
class Call:
    """One function that was scheduled.

    Attributes
    ----------
    arguments
        What it is sent with.
    keep
        What must live on the chief until it has run: variables and datasets in the arguments.
    is_own
        Whether it is for one worker, and nobody else runs it.
    losses
        How many workers have ended with it.
    order
        Its place among those that any worker can run, as they were scheduled.
    place
        Its place in a synchronous round, or -1.
    """

    function: Function
    arguments: Arguments
    value: RemoteValue
    keep: Any
    is_own: bool = False
    losses: int = 0
    order: int = 0
    place: int = -1

    def packed_for(self, worker: int) -> bytes:
        """Return the arguments for a worker."""
        packed = self.arguments.packed
        return packed[worker] if isinstance(packed, list) else packed

    @property
    def is_ready(self) -> bool:
        """Whether the results that it needs are there, or will never be."""
        return all(value.is_done for value in self.arguments.needed)


@dataclass(slots=True, eq=False)
class WorkerState:
    """A worker as the chief sees it.

    Attributes
    ----------
    own
        Calls that only this worker can run.
    sent
        Calls that it was sent and has not finished, by their numbers, the oldest first.
    known
        Numbers of the functions that it has.
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
    forgotten: deque[tuple[str, int]] = field(default_factory=deque)
    average_s: float | None = None
    since: float = 0.0
    is_lost: bool = False

    @property
    def oldest(self) -> Call | None:
        """The oldest call that it has, of those that any worker could run."""
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

    def note(self, call_number: int) -> Call | None:
        """Take a call off the list of those that it has."""
        call = self.sent.pop(call_number, None)
        if call is not None:
            self.sent_bytes -= len(call.packed_for(self.member.task_id))
            self.since = time.monotonic()
        return call

    def take_forgotten(self) -> list[tuple[str, int]]:
        """Return what the worker is to drop before it runs the next calls, and count on that."""
        found = []
        while self.forgotten:
            found.append(self.forgotten.popleft())
        self.known.difference_update(number for kind, number in found if kind == "function")
        return found

    def learn_function(self, function: Function) -> None:
        """Note that the worker is sent a function."""
        self.known.add(function.number)
        if function.is_dropped:  # it was waiting when it was dropped
            self.forgotten.append(("function", function.number))

    def learn(self, average_s: float) -> None:
        """Take in how long its functions take."""
        old = self.average_s
        self.average_s = average_s if old is None else old + _SHARE * (average_s - old)
