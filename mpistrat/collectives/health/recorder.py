"""The flight recorder: the last calls of a communicator, to read after an error.

A call is recorded when the gate shows its header, and once more when it is over. The ring of
records is the kernels' (kernels/calls), so that fast calls are recorded without Python; where
there are no kernels it is one in Python. Both hold numbers (call_record.py).
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Protocol

from mpistrat import config
from mpistrat.collectives.health.call_record import (
    SEPARATOR,
    CallRecord,
    Kind,
    text_of,
)
from mpistrat.system.kernels import kernels, why_no_kernels

__all__ = ["PythonRing", "Recorder", "Ring"]

_STATES = ("under way", "done", "failed")
_UNDER_WAY, _DONE, _FAILED = range(3)
_SHOWN = 10  # of the last calls, after an error
_DRAINED = 8192  # records of a ring that a timeline reads every half


class Ring(Protocol):
    """A ring of records; see kernels/include/mpistrat/flight_recorder.h."""

    @property
    def count(self) -> int:
        """How many calls have begun."""
        ...

    def begin(
        self, sequence: int, nbytes: int, op: int, reduction: int, dtype: int, label: int
    ) -> None:
        """Record that a call begins; one that is still under way has succeeded."""
        ...

    def end(self, state: int) -> bool:
        """Record how the call under way ended; tell whether `keep`'s reader should read now."""
        ...

    def read(self, first: int) -> list[tuple[int, ...]]:
        """Return the records from number `first` on that are left."""
        ...

    def keep(self, start: int) -> None:
        """Say that a reader needs all records from number `start` on; a negative one: none."""
        ...


class PythonRing:
    """The ring where there are no kernels."""

    def __init__(self, capacity: int) -> None:
        self._rows: deque[list[int]] = deque(maxlen=max(2, capacity))
        self._keep_from: int | None = None
        self.count = 0

    def begin(
        self, sequence: int, nbytes: int, op: int, reduction: int, dtype: int, label: int
    ) -> None:
        """See `Ring`."""
        self.end(_DONE)
        now = time.monotonic_ns()
        row = [self.count, sequence, now, 0, nbytes, op, reduction, dtype, label, _UNDER_WAY]
        self._rows.append(row)
        self.count += 1

    def end(self, state: int) -> bool:
        """See `Ring`."""
        if self._rows and self._rows[-1][9] == _UNDER_WAY:
            self._rows[-1][3] = time.monotonic_ns()
            self._rows[-1][9] = state
        waiting = 0 if self._keep_from is None else self.count - self._keep_from
        return waiting > (self._rows.maxlen or 0) // 2

    def read(self, first: int) -> list[tuple[int, ...]]:
        """See `Ring`."""
        # Of a copy: the thread of stacks.py reads while calls are added.
        return [tuple(row) for row in list(self._rows) if row[0] >= first]

    def keep(self, start: int) -> None:
        """See `Ring`."""
        self._keep_from = None if start < 0 else start


class Recorder:
    """The records of one communicator, and who else wants them (timeline.py).

    Attributes
    ----------
    ring
        The ring, or None if no records are kept.
    rank
        Of the communicator.

    Parameters
    ----------
    rank, size
        Of this process in the communicator.
    place
        The same in words, for texts.
    """

    def __init__(self, rank: int, size: int, place: str | None = None) -> None:
        self.rank, self._place = rank, place or f"{rank}/{size}"
        self._is_dumped = False
        self._next = 0
        self._sink: Sink | None = None
        records = config.valid_or(config.records, config.DEFAULT_RECORDS)
        capacity = max(records, _DRAINED if config.timeline() else 0)
        self._carriers: dict[int, str] = {}  # by sequence, of the last calls on GPUs
        self._capacity = capacity
        self.ring: Ring | None = (
            PythonRing(capacity) if why_no_kernels() else kernels().Records(capacity)
        )

    def begin(self, sequence: int, kind: Kind, nbytes: int | None) -> None:
        """Record that a call begins."""
        if self.ring is not None:
            # A call that is still under way here has succeeded: ended now, it can be handed on
            # before the ring, half full of unread records, overwrites one.
            if self._sink is not None and self.ring.end(_DONE):
                self.drain()
            brought = kind.nbytes if nbytes is None else nbytes
            self.ring.begin(sequence, brought, *kind[1:5])

    def end(self, is_done: bool) -> None:
        """Record that the call under way is over."""
        if self.ring is not None and self.ring.end(_DONE if is_done else _FAILED):
            self.drain()

    def note_carrier(self, sequence: int, name: str) -> None:
        """Record what carries the arrays on GPUs of a call."""
        if self.ring is None:
            return
        self._carriers[sequence] = name
        if len(self._carriers) > self._capacity:
            del self._carriers[next(iter(self._carriers))]  # the oldest

    def stop(self) -> None:
        """Keep no records from now on, nor those that there are."""
        self.ring = None

    def records(self) -> list[CallRecord]:
        """Return what is left of the past calls, the oldest first."""
        return [] if self.ring is None else [self._record(row) for row in self.ring.read(0)]

    def last(self) -> CallRecord | None:
        """Return the last call, or None if there is no record of one."""
        rows = [] if self.ring is None else self.ring.read(self.ring.count - 1)
        return self._record(rows[-1]) if rows else None

    @property
    def has_failed(self) -> bool:
        """Whether the last call failed."""
        last = self.last()
        return last is not None and last.state == _STATES[_FAILED]

    # ------------------------------------------------------------------------------ readers

    def feed(self, sink: Sink) -> None:
        """Hand every call to `sink` once it is over, from now on."""
        if self.ring is not None:
            self._sink = sink
            self._next = self.ring.count
            self.ring.keep(self._next)

    def drain(self, is_end: bool = False) -> None:
        """Hand on the calls that are over; at the end the one under way, too."""
        if self.ring is None or self._sink is None:
            return
        with self._sink.lock:
            for row in self.ring.read(self._next):
                if row[9] == _UNDER_WAY and not is_end:
                    break
                self._sink.add(self._record(row), self)
                self._next = row[0] + 1
            self.ring.keep(self._next)

    def dump(self) -> str:
        """Return the last calls in words, or "" if that was done before or there are none."""
        last = [] if self._is_dumped else self.records()[-_SHOWN:]
        if not last:
            return ""
        self._is_dumped = True
        who = f"[mpistrat {self._place}]"
        rows = [f"{who}   {record}" for record in last]
        return "\n".join([f"{who} the last calls of this communicator:", *rows, ""])

    def _record(self, row: tuple[int, ...]) -> CallRecord:
        _, sequence, begin_ns, end_ns, nbytes, op, reduction, dtype, label, state = row
        name, device, carrier, *_ = [*(text_of(op) or "").split(SEPARATOR), "", ""]
        return CallRecord(
            *(sequence, name, text_of(reduction), text_of(dtype), nbytes, text_of(label)),
            *(begin_ns, end_ns or None, _STATES[state]),
            *(device or None, carrier or self._carriers.get(sequence)),
        )


class Sink(Protocol):
    """Who takes every record."""

    lock: Any

    def add(self, record: CallRecord, recorder: Recorder) -> None:
        """Take a call; the lock is held."""
        ...
