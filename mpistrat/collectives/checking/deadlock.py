"""Detect ranks that use several communicators in different orders, instead of hanging.

The gate sees an unequal order within its own communicator at once. But where rank 0 waits in a
call of communicator A while rank 1 waits in one of B, no gate has anything to compare. So a rank
that has waited for a while tells its peers, through every communicator that it has, where it
waits and how many calls of each communicator it has made. A peer can then be certain:

    rank r waits in call m of A, and I have made fewer calls of A: it waits for me;
    I wait in call n of B, and rank r has made fewer calls of B: I wait for it.

Neither can go on, whatever the other ranks do, and both raise `MismatchError`. What counts are the
calls of one thread; communicators that another thread uses too are left to their deadlines.

Where one rank is late, all others wait in the same call, having made the same calls, and a notice
of one of them says what those of the rest would. So each rank waits for a random time more, and
stays silent if it has heard the same meanwhile: a few ranks send P - 1 notices, not all P of them.
"""

from __future__ import annotations

import math
import random
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mpistrat.collectives.checking.call_site import caller
from mpistrat.collectives.health.peers import cut, decode
from mpistrat.errors import MismatchError, PeerLostError

if TYPE_CHECKING:
    from mpistrat.collectives.progress.engine import Engine

__all__ = ["ThreadCalls", "current", "say_after_s"]

SAY_AFTER_S = 2.0
"""How long a wait may last before the peers are told of it; a little more on most ranks."""

SPREAD_S = 0.1
"""Over how many times log2(size) of this the notices of the ranks are spread; few come early."""

CREATION = 1
"""The number of what is no communicator yet: the creation of one over all ranks of the job."""

_HEAD = struct.Struct("<qqq")
_ENTRY = struct.Struct("<qq")
# With the head and the text these fit in a notice (_MOST_TEXT of health/peers.py).
_MOST_ENTRIES = 40

_random = random.Random()  # not the program's, whose numbers must not depend on waits


def say_after_s(size: int) -> float:
    """Return after how long a wait this rank tells the `size` ranks of it. **Local.**

    It is another time on each rank, at most ``SAY_AFTER_S + SPREAD_S * log2(size)``. However many
    of them wait, one or two are much earlier than the others.
    """
    return SAY_AFTER_S + SPREAD_S * math.log2(1 + (size - 1) * _random.random())


class Place(NamedTuple):
    """Where a rank waits: in call `number` of communicator `uid`, whose calls it has counted."""

    uid: int
    number: int
    calls: dict[int, int]
    text: str


class ThreadCalls:
    """The communicators that one thread made, and so the order of its calls of them.

    Attributes
    ----------
    creations
        How many communicators over all ranks of the job it began to make.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._engines: weakref.WeakSet[Engine] = weakref.WeakSet()
        self.creations = 0

    def add(self, engine: Engine) -> None:
        """Take in a communicator's engine."""
        self._engines.add(engine)

    def progress(self, waiting: Engine | None = None) -> None:
        """Advance the asynchronous calls of the other communicators: peers may wait for them."""
        for engine in self._open():
            if engine is not waiting:
                engine.poll()

    def has_pending(self, waiting: Engine) -> bool:
        """Tell whether asynchronous calls of other communicators are under way."""
        return any(engine is not waiting and engine.is_pending for engine in self._open())

    def say(self, uid: int, number: int, what: str) -> None:
        """Tell all peers that this rank waits in `what`, unless another one has said the same."""
        calls = sorted(self._calls().items())[:_MOST_ENTRIES]
        head = _HEAD.pack(uid, number, len(calls))
        place = head + b"".join(_ENTRY.pack(*entry) for entry in calls)
        text = cut(f"{what} at {caller()}", 400)
        for engine in self._open():
            peers = engine.health.peers
            peers.listen()
            if not any(notice.startswith(place) for notice in peers.blocked.values()):
                peers.say_blocked(place + text.encode())

    def check(self, uid: int, number: int, what: Callable[[], str]) -> None:
        """Raise `MismatchError` if a peer and this rank wait for each other."""
        if threading.get_ident() != self._thread:
            return
        mine = self._calls()
        for engine in self._unclosed():
            engine.health.peers.listen()
            for rank, notice in sorted(engine.health.peers.blocked.items()):
                place = _unpack(notice)
                # A communicator that one side does not list (it is closed, or beyond
                # _MOST_ENTRIES) proves nothing: the default makes the comparison false.
                waits_for_me = mine.get(place.uid, place.number) < place.number
                if waits_for_me and place.calls.get(uid, number) < number:
                    self.say(uid, number, what())  # so that the peer finds the same
                    raise _tangled(engine, rank, place.text, what())

    def check_lost_or_leaving(self, size: int, what: str) -> None:
        """Raise `PeerLostError` if a rank has ended, or leaves, as another communicator knows.

        Only communicators of `size` ranks, so that their numbers are those of the job.
        """
        for engine in self._open():
            if engine.gate.size != size:
                continue
            # A communicator in the making has no control yet that could notice it.
            peers, names = engine.health.peers, engine.gate.names
            lost = [(rank, "process") for rank in peers.lost()]
            for rank, part in lost + [(rank, "program") for rank in sorted(peers.leaving)]:
                raise PeerLostError(
                    f"{what} on rank {names.here} cannot finish: the {part} of rank"
                    f" {names.of(rank)} has ended",
                    rank,
                    names.world_rank(rank),
                )

    def _open(self) -> Iterator[Engine]:
        # After the last crossing has begun no notice may go out: the peers know their number.
        return (engine for engine in self._unclosed() if not engine.health.closing)

    def _unclosed(self) -> Iterator[Engine]:
        """Yield those that hear notices: also one that this rank is closing."""
        for engine in list(self._engines):
            health = engine.health
            if health.broken is None and not health.closed and not engine.is_foreign:
                yield engine

    def _calls(self) -> dict[int, int]:
        calls = {one.health.uid: one.started for one in self._open() if one.health.uid}
        return {CREATION: self.creations, **calls}


def _unpack(notice: bytes) -> Place:
    uid, number, count = _HEAD.unpack_from(notice)
    entries = range(_HEAD.size, _HEAD.size + count * _ENTRY.size, _ENTRY.size)
    calls = dict(_ENTRY.unpack_from(notice, at) for at in entries)
    text = decode(notice[_HEAD.size + count * _ENTRY.size :])
    return Place(uid, number, calls, text)


def _tangled(engine: Engine, rank: int, theirs: str, mine: str) -> MismatchError:
    gate = engine.gate
    calls = {gate.rank: f"{mine} at {caller()}", rank: theirs}
    rows = [f"  rank {gate.names.of(r)}: {calls[r]}" for r in sorted(calls)]
    return MismatchError(
        "\n".join(
            [
                "two ranks wait for each other in calls of different communicators (seen on rank"
                f" {gate.names.here}):",
                *rows,
                "all ranks must make and call their strategies and communicators in one order",
            ]
        ),
        calls,
    )


_threads = threading.local()


def current() -> ThreadCalls:
    """Return those of the calling thread."""
    found: ThreadCalls | None = getattr(_threads, "calls", None)
    if found is None:
        found = _threads.calls = ThreadCalls()
    return found
