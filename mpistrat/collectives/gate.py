"""The gate: before data moves, every rank shows what it is about to call.

Each call starts with one small exchange of *lines*. A line is four int64 words and room for a
small payload: ``[sequence, digest, failures, extra | payload]``. The first three must be equal on
all ranks; `extra` is a number that every rank may want to know of every other (the length of a
ragged axis). If lines differ, a second exchange carries each rank's call in words, and every rank
raises the same report. A small reduction rides in the payload and needs no further message.

*Failures.* ``run`` is not collective, so a replica function may raise on one rank alone. That
rank counts a failure and sends the others a notice with the number of calls it had finished. A
peer that waits in a later call without having failed as often raises `PeerLostError`. When all
ranks fail alike (and catch it alike) their counts agree, and the communicator stays usable. A
wait that was given up (a deadline, Ctrl-C) cannot be mended: the communicator is broken.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from mpistrat import config
from mpistrat.collectives import fingerprint
from mpistrat.collectives.base import Backend, Request, Steps
from mpistrat.collectives.fingerprint import Signature
from mpistrat.collectives.reductions import check_op, widened
from mpistrat.errors import (
    BackendError,
    ClosedError,
    CommunicationError,
    MismatchError,
    PeerLostError,
)
from mpistrat.types import Array

__all__ = ["Gate"]

_HEAD = 32
_AGREED = 24
_TEXT = 1024
_NOTICE = struct.Struct("<cqqq")
_FAILED, _BROKEN, _STALLED, _LEAVING = b"F", b"B", b"S", b"L"


class _Notice(NamedTuple):
    """What a peer said of itself: its kind of trouble, and at which call it was."""

    kind: bytes
    failures: int
    number: int
    origin: int
    text: str


class Gate:
    """One communicator's sequence of calls, and what is known of its peers' health.

    Attributes
    ----------
    sequence
        Number of calls started.
    completed
        Number of calls whose lines were exchanged.
    failures
        How often a replica function raised on this rank.
    label
        What the call under way was made for; must agree on all ranks.
    broken
        Why no further call can succeed, or None.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.rank, self.size = backend.rank, backend.size
        inline = config.INLINE_BYTES if self.size <= config.INLINE_MAX_RANKS else 0
        self.inline_bytes = inline
        self._line, self._table = backend.open_gate(_HEAD + inline)
        self._words = self._line[:_HEAD].view(np.int64)
        self.extras = self._table[:, _AGREED:_HEAD].view(np.int64)[:, 0]
        self._agreed = self._table[:, :_AGREED]
        self.sequence = self.completed = self.failures = 0
        self.label: str | None = None
        self.broken: str | None = None
        self.closed = False
        self._last_failure = ""
        self._notices: dict[int, _Notice] = {}
        self.stalled: dict[int, int] = {}
        self.leaving: dict[int, int] = {}
        self.announced = 0
        self._heard_from = [0] * self.size
        self._known_error: Exception | None = None
        self._possible: set[tuple[str, np.dtype[Any]]] = set()

    def require(self, op: str, dtype: np.dtype[Any]) -> None:
        """Raise unless `op` has a meaning for `dtype`, and the backend can do it."""
        if isinstance(op, str) and (op, dtype) in self._possible:
            return
        check_op(op, dtype)
        can = self.backend.capabilities()
        base = "sum" if op == "mean" else op
        if base not in can.ops or widened(op, dtype).name not in can.dtypes:
            raise BackendError(
                f"reduction {op!r} of {dtype} on rank {self.rank}/{self.size}: backend"
                f" {self.backend.name!r} has ops {sorted(can.ops)} and dtypes"
                f" {sorted(can.dtypes)}; try backend='mpi'"
            )
        self._possible.add((op, dtype))

    # ------------------------------------------------------------------ the exchange of lines

    def cross(
        self, signature: Signature, extra: int = 0, payload: Array | None = None
    ) -> Generator[Request, None, None]:
        """Wait until all ranks are at this call, and check that it is the same one.

        Afterwards ``extras`` and :meth:`payloads` hold what the ranks brought.
        """
        digest = fingerprint.digest(signature, self.label)
        yield from self._exchange(digest, extra, payload, signature)

    def _exchange(
        self,
        digest: int,
        extra: int,
        payload: Array | None,
        what: Signature | str,
    ) -> Generator[Request, None, None]:
        words = self._words
        self.sequence = words[0] = self.sequence + 1
        self._known_error = None
        words[1] = digest
        words[2] = self.failures
        words[3] = extra
        if payload is not None:
            self._line[_HEAD : _HEAD + payload.nbytes] = payload.view(np.uint8)
        if self.size == 1:
            self._table[0] = self._line
        else:
            yield self.backend.post()
            if self._agreed.tobytes() != self._line[:_AGREED].tobytes() * self.size:
                yield from self._explain(what)
        self.completed += 1

    def payloads(self, like: Array) -> Array:
        """Return all ranks' payloads, shape (size, like.size), dtype of `like`; a view."""
        return self._table[:, _HEAD : _HEAD + like.nbytes].view(like.dtype)

    def refuse(self, error: Exception) -> Steps:
        """Take this rank's part in a call whose arguments it refuses, then raise `error`.

        The peers are not left waiting: they see `MismatchError` with this rank's reason, unless
        every rank refused, in which case each raises its own error.
        """
        what = f"a call that it refused: {type(error).__name__}: {error}"
        try:
            yield from self._exchange(fingerprint.INVALID, 0, None, what)
        except MismatchError:
            pass  # the peers' calls were fine; ours is what has to be mended
        raise self._known(error)

    def _explain(self, what: Signature | str) -> Generator[Request, None, NoReturn]:
        self.completed += 1
        failures = self._table[:, 16:24].view(np.int64)[:, 0].copy()
        text = what if isinstance(what, str) else fingerprint.describe(what, self.label)
        text = f"{_cut(text, 500)} at {fingerprint.caller()}"
        if self._last_failure:
            text += f", after it failed with {self._last_failure}"
        calls = yield from self._gather_texts(text)
        message = fingerprint.mismatch_text(calls, self.rank)
        worst = int(failures.argmax())
        if failures[worst] > self.failures:
            raise self._known(PeerLostError(f"rank {worst} failed alone:\n{message}", rank=worst))
        raise self._known(MismatchError(message, calls))

    def _gather_texts(self, text: str) -> Generator[Request, None, dict[int, str]]:
        mine = np.zeros(_TEXT, np.uint8)
        data = np.frombuffer(text.encode()[:_TEXT], np.uint8)
        mine[: data.size] = data
        everyone = np.empty(_TEXT * self.size, np.uint8)
        yield from self.backend.allgather(mine, everyone, [_TEXT] * self.size)
        rows = everyone.reshape(self.size, _TEXT)
        return {r: _decode(row.tobytes().rstrip(b"\0")) for r, row in enumerate(rows)}

    def _known(self, error: Exception) -> Exception:
        """Note an error that all ranks hear of together: it needs no notice of failure."""
        self._known_error = error
        return error

    def is_known(self, error: BaseException) -> bool:
        """Tell whether all ranks heard of `error` together, in the last call. **Local.**"""
        return error is self._known_error

    # ------------------------------------------------------------------------------- health

    def check_open(self) -> None:
        """Raise if this communicator was closed or is broken."""
        if self.closed:
            raise ClosedError("this communicator (or its strategy) was closed; make a new one")
        if self.broken is not None:
            raise CommunicationError(
                f"the communicator is broken on rank {self.rank}/{self.size} since:"
                f" {self.broken}; make a new strategy on all ranks, or end the job"
            )

    def fail(self, error: BaseException, is_end: bool = False) -> None:
        """Tell the peers that a replica function raised on this rank. **Local.**

        An error that all ranks have just heard of together is nothing new to them, unless it
        ends this rank's program.
        """
        if self.size == 1 or self.broken is not None or self.closed:
            return
        if self.is_known(error) and not is_end:
            return
        self.failures += 1
        self._last_failure = _short(error)
        self._announce(_FAILED, self.completed, self._origin(error), self._last_failure)

    def break_off(self, error: BaseException) -> None:
        """Give up a wait for good, and tell the peers. **Local.**"""
        if self.broken is None and not self.closed:
            self.broken = _short(error)
            if self.size > 1:
                self._announce(_BROKEN, self.sequence - 1, self._origin(error), self.broken)

    def leave(self) -> None:
        """Tell the peers that this rank's program is about to end. **Local.**"""
        self._announce(_LEAVING, self.completed)

    def say_stalled(self) -> None:
        """Tell the peers which call this rank waits in. **Local.**"""
        self._announce(_STALLED, self.sequence)

    def _origin(self, error: BaseException) -> int:
        """Return the rank where a failure began."""
        is_peers = isinstance(error, PeerLostError) and error.rank >= 0
        return error.rank if is_peers else self.rank  # type: ignore[attr-defined]

    def _announce(self, kind: bytes, number: int, origin: int = -1, text: str = "") -> None:
        notice = _NOTICE.pack(kind, self.failures, number, origin) + text.encode()[:1200]
        self.announced += 1
        self.backend.announce(notice)

    def listen(self) -> None:
        """Take in the peers' notices. **Local.**"""
        while (news := self.backend.heard()) is not None:
            rank, data = news
            self._heard_from[rank] += 1
            kind, failures, number, origin = _NOTICE.unpack(data[: _NOTICE.size])
            if kind == _STALLED:
                self.stalled[rank] = number
            elif kind == _LEAVING:
                self.leaving[rank] = number
            else:
                text = _decode(data[_NOTICE.size :])
                self._notices[rank] = _Notice(kind, failures, number, origin, text)

    def collect(self, counts: Sequence[int]) -> Generator[Request, None, None]:
        """Wait until `counts` notices of each rank were taken in.

        What is left behind when a communicator is freed, a later one could get: MPI libraries
        use their numbers again.
        """
        yield _Notices(self, counts)

    def has_heard(self, counts: Sequence[int]) -> bool:
        """Take in notices; tell whether at least `counts` came from each other rank. **Local.**"""
        self.listen()
        return all(
            heard >= count
            for rank, (heard, count) in enumerate(zip(self._heard_from, counts, strict=True))
            if rank != self.rank
        )

    def check_peers(self) -> None:
        """Raise `PeerLostError` if a peer can never reach the call that this rank waits in."""
        for rank, (kind, failures, number, origin, text) in sorted(self._notices.items()):
            unreachable = self.sequence > number  # it finished `number` calls and makes no more
            if unreachable and (kind == _BROKEN or failures > self.failures):
                how = "failed" if kind == _FAILED else "gave up"
                raise PeerLostError(
                    f"call {self.sequence} on rank {self.rank}/{self.size}"
                    f" ({self.backend.name}) cannot finish: rank {rank} {how} with {text}",
                    rank=origin,
                )
        self.check_leavers()

    def check_leavers(self) -> None:
        """Raise `PeerLostError` if a peer's program ended before the call waited in."""
        for rank, number in sorted(self.leaving.items()):
            if self.sequence > number:
                raise PeerLostError(
                    f"call {self.sequence} on rank {self.rank}/{self.size} ({self.backend.name})"
                    f" cannot finish: the program of rank {rank} has ended with an error",
                    rank=rank,
                )

    def absent(self) -> Sequence[int]:
        """Return the ranks that did not say that they wait in this rank's call."""
        waiting = {r for r, number in self.stalled.items() if number >= self.sequence}
        return [r for r in range(self.size) if r != self.rank and r not in waiting]


class _Notices:
    """The request of notices that are still on their way."""

    def __init__(self, gate: Gate, counts: Sequence[int]) -> None:
        self._gate, self._counts = gate, counts

    def Test(self) -> bool:  # noqa: N802 - see Request
        return self._gate.has_heard(self._counts)


def _short(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return _cut(text, 400)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")
