"""The health of the peers, from notices that they send outside of the collectives.

``run`` is not collective, so a replica function may raise on one rank alone. That rank counts a
failure and sends the others a notice with the number of calls it had finished. A peer that waits
in a later call without having failed as often raises `PeerLostError`. When all ranks fail alike
(and catch it alike) their counts agree, and the communicator stays usable. A wait that was given
up (a deadline, Ctrl-C) cannot be mended: the communicator is broken.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from mpistrat.collectives.backends.base import Backend
from mpistrat.collectives.backends.control import Control
from mpistrat.collectives.health.rank_names import RankNames
from mpistrat.errors import CommunicationError, MismatchError, PeerLostError

__all__ = ["Peers", "cut", "decode", "short"]

_NOTICE = struct.Struct("<cqqq")
_FAILED, _BROKEN, _TANGLED, _STALLED, _LEAVING, _BLOCKED = b"F", b"B", b"T", b"S", b"L", b"W"
_ENDED = b"E"  # not of the sender's end, but of another's
# Bytes. With the head they fit in a notice of any backend, which has 2 kB.
_MOST_TEXT = 1200


class _Trouble(NamedTuple):
    """What a peer said of its end: its kind, and at which call it was."""

    kind: bytes
    failures: int
    number: int
    origin: int
    text: str


class Peers:
    """The notices of one communicator, sent and received. All methods are **Local.**

    A notice is a message of up to 1.3 kB to each of the P - 1 other ranks, because any of them may
    be the one that waits. After an error each rank sends one or two (it failed, it leaves): where
    all fail, they send more than P² together. In a wait of more than `deadlock.SAY_AFTER_S`, a few
    ranks send one through each open communicator.

    Attributes
    ----------
    failures
        How often a replica function raised on this rank.
    last_failure
        The last of these errors, in words.
    announced
        How many notices this rank has sent.
    stalled
        The call that a peer says it waits in beyond its deadline, by rank.
    ended
        The ranks whose processes have ended, as this one or another found in a wait.
    leaving
        How many calls a peer had finished when its program ended with an error, by rank.
    exit_statuses
        The exit status that a peer whose program ended chose by ``sys.exit``, by rank.
    blocked
        What a peer said last of a long wait, in whichever communicator (see deadlock.py), by rank.
    """

    def __init__(self, backend: Backend, control: Control, names: RankNames | None = None) -> None:
        self._backend, self._control = backend, control
        self.rank, self.size = backend.rank, backend.size
        self._names = names or RankNames(self.rank, self.size)
        self.failures = self.announced = 0
        self.last_failure = ""
        self.stalled: dict[int, int] = {}
        self.ended: set[int] = set()
        self.leaving: dict[int, int] = {}
        self.exit_statuses: dict[int, int] = {}
        self.blocked: dict[int, bytes] = {}
        self._troubles: dict[int, _Trouble] = {}
        self._heard_from = [0] * self.size

    # -------------------------------------------------------------------------------- saying

    def say_failed(self, error: BaseException, completed: int) -> None:
        """Tell that a replica function raised here, after `completed` calls."""
        self.failures += 1
        self.last_failure = short(error)
        self._say(_FAILED, completed, self._origin(error), self.last_failure.encode())

    def say_broken(self, error: BaseException, completed: int) -> None:
        """Tell that this rank makes no more calls after `completed` ones."""
        # A few ranks only watch each process (udp_probe.py); the others hear of its end here.
        for rank in sorted(self.ended):
            self._say(_ENDED, completed, rank)
        kind = _TANGLED if isinstance(error, MismatchError) else _BROKEN
        text = str(error) if kind == _TANGLED else short(error)
        self._say(kind, completed, self._origin(error), text.encode())

    def say_stalled(self, sequence: int) -> None:
        """Tell that this rank waits in call `sequence` beyond its deadline."""
        self._say(_STALLED, sequence)

    def say_leaving(self, completed: int, status: int) -> None:
        """Tell that this rank's program is about to end, with what ``sys.exit`` got, or 0."""
        self._say(_LEAVING, completed, data=bytes([status]))

    def say_blocked(self, where: bytes) -> None:
        """Tell where this rank has been waiting for long."""
        self._say(_BLOCKED, 0, data=where)

    def _say(self, kind: bytes, number: int, origin: int = -1, data: bytes = b"") -> None:
        if self.size > 1:
            # The closing call's header shows this count, and each peer waits for that many.
            self.announced += 1
            head = _NOTICE.pack(kind, self.failures, number, origin)
            self._control.notices.announce(head + data[:_MOST_TEXT])

    def _origin(self, error: BaseException) -> int:
        """Return the rank where a failure began."""
        if not isinstance(error, PeerLostError) or error.rank < 0:
            return self.rank
        if error.world_rank < 0:
            return error.rank
        # The error may be of another communicator, which numbers its ranks in its own way.
        found = self._names.rank_of(error.world_rank)
        return self.rank if found is None else found

    def _lost_error(self, text: str, rank: int) -> PeerLostError:
        return PeerLostError(text, rank, self._names.world_rank(rank))

    # --------------------------------------------------------------------------------- hearing

    def listen(self) -> None:
        """Take in the peers' notices."""
        while (news := self._control.notices.heard()) is not None:
            rank, data = news
            self._heard_from[rank] += 1
            kind, failures, number, origin = _NOTICE.unpack(data[: _NOTICE.size])
            rest = data[_NOTICE.size :]
            if kind == _STALLED:
                self.stalled[rank] = number
            elif kind == _LEAVING:
                self.leaving[rank] = number
                if any(rest):
                    self.exit_statuses[rank] = rest[0]
            elif kind == _ENDED:
                self._note_end(origin)
            elif kind == _BLOCKED:
                self.blocked[rank] = rest
            else:
                self._troubles[rank] = _Trouble(kind, failures, number, origin, decode(rest))

    def has_heard(self, counts: Sequence[int]) -> bool:
        """Take in notices; tell whether at least `counts` came from each other rank."""
        self.listen()
        return all(
            heard >= count
            for rank, (heard, count) in enumerate(zip(self._heard_from, counts, strict=True))
            if rank != self.rank
        )

    def check(self, sequence: int) -> None:
        """Raise if a peer can never reach call `sequence`, in which this rank waits."""
        # First what a peer has said of its end, as it gives a reason; an ended process gives none.
        self._check_troubles(sequence)
        lost = self._control.liveness.ended(sequence)
        for rank in lost:
            self._note_end(rank)
        if lost:
            which = f"process of rank {self._names.of(lost[0])} has ended"
            if len(lost) > 1:  # launchers end those beside a dead one
                which = f"processes of ranks {self._names.listed(lost)} have ended"
            text = f"{self._call(sequence)} cannot finish: the {which}"
            raise self._lost_error(text, lost[0])

    def lost(self) -> Sequence[int]:
        """Return the ranks whose processes are known to have ended."""
        return self._control.liveness.ended()

    def _note_end(self, rank: int) -> None:
        self.ended.add(rank)
        self._control.notices.mark_lost(rank)

    def trouble(self) -> tuple[int, str] | None:
        """Return a peer whose program has failed, and its error in words; None if all are well.

        For ranks that are in no call: they need not wait for one to be told.
        """
        self.listen()
        for rank, trouble in sorted(self._troubles.items()):
            return rank, trouble.text
        return next(((rank, "an error") for rank in sorted(self.leaving)), None)

    def _check_troubles(self, sequence: int) -> None:
        for rank, trouble in sorted(self._troubles.items()):
            # A peer that finished `number` calls makes no more.
            if sequence > trouble.number and (
                trouble.kind != _FAILED or trouble.failures > self.failures
            ):
                raise self._lost(rank, trouble, sequence)
        for rank, number in sorted(self.leaving.items()):
            if sequence > number:
                raise self._lost_error(
                    f"{self._call(sequence)} cannot finish: the program of rank"
                    f" {self._names.of(rank)} has ended with an error",
                    rank,
                )

    def _lost(self, rank: int, trouble: _Trouble, sequence: int) -> CommunicationError:
        if trouble.kind == _TANGLED:
            is_relayed = trouble.text.startswith("rank ")
            name = self._names.of(rank)
            found = trouble.text if is_relayed else f"rank {name} found that {trouble.text}"
            if trouble.failures > self.failures:  # as Gate._explain finds
                return self._lost_error(f"rank {name} failed alone:\n{found}", rank)
            return MismatchError(found)
        how = "failed" if trouble.kind == _FAILED else "gave up"
        return self._lost_error(
            f"{self._call(sequence)} cannot finish: rank {self._names.of(rank)} {how} with"
            f" {trouble.text}",
            trouble.origin,
        )

    def _call(self, sequence: int) -> str:
        return f"call {sequence} on rank {self._names.here_by(self._backend.name)}"

    def is_asked(self, sequence: int) -> bool:
        """Tell whether a peer whose deadline passed in this same call asks who waits too."""
        return any(number == sequence for number in self.stalled.values())

    def absent(self, sequence: int) -> list[int]:
        """Return the ranks that did not say that they wait in call `sequence`."""
        waiting = {r for r, number in self.stalled.items() if number >= sequence}
        return [r for r in range(self.size) if r != self.rank and r not in waiting]


def short(error: BaseException) -> str:
    """Return an error in at most 400 bytes."""
    return cut(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 400)


def cut(text: str, length: int) -> str:
    """Return `text` in at most `length` bytes of UTF-8."""
    data = text.encode()
    return text if len(data) <= length else f"{data[: length - 3].decode(errors='ignore')}..."


def decode(data: bytes) -> str:
    """Return text that may have been cut in the middle of a character."""
    return data.decode("utf-8", "replace")
