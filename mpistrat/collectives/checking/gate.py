"""The gate: before data moves, every rank posts a header of the call that it makes.

Each call starts with one small exchange of *lines* (headers.py): sequence, digest and failures
must be equal on all ranks; `extra` is a number that every rank may want to know of every other
(the length of a ragged axis). If lines differ, a second exchange carries each rank's call in
words, and every rank raises the same report. A small reduction rides in the payload and needs no
further message.

What the ranks know of each other's health besides is in peers.py.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any, NoReturn

import numpy as np

from mpistrat import config
from mpistrat.collectives.arrays.buffer_pool import ResultPool
from mpistrat.collectives.backends.base import Ahead, Backend, LinesDiffer, Request, Steps
from mpistrat.collectives.checking import fingerprint
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.headers import Lines, with_length
from mpistrat.collectives.health.peers import Peers, cut, decode, short
from mpistrat.collectives.health.recorder import Kind, Recorder, kind_of, text_number
from mpistrat.collectives.health.stacks import Stacks
from mpistrat.errors import (
    BackendError,
    ClosedError,
    CommunicationError,
    MismatchError,
    PeerLostError,
)
from mpistrat.tables.reductions import Carried, carried, check_op
from mpistrat.types import Array

__all__ = ["Gate"]

_TEXT = 1024
_MOST_GUESSED = 1 << 30  # bytes of a result that is made before its length is known

_REFUSED = Kind(fingerprint.INVALID, text_number("a refused call"), 0, 0, 0, 0)
_UNCHECKED = Kind(0, 0, 0, 0, 0, 0)


class Gate:
    """One communicator's sequence of calls, and what is known of its peers' health.

    Attributes
    ----------
    checks
        Whether transfers of this backend can carry the lines themselves (:meth:`guard`).
    recorder
        The records of the last calls.
    has_digests
        Whether the ranks compare what they call (``MPISTRAT_CHECKS``).
    results
        Memory for the results of fused calls.
    scattered
        What was scattered last, by root and axis (operations/scatter.py).
    stacks
        How to ask ranks that are missing what they do, where that is possible.
    peers
        What is known of the other ranks' health.
    uid
        A number that this communicator has on all its ranks, and no other one; 0 until agreed.
    label
        What the call under way was made for; must agree on all ranks.
    remark
        What this rank's calls are part of: shown in errors, not compared; None if nothing.
    closing
        Whether the last crossing has begun, after which no notice may be sent.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.peers = Peers(backend)
        self.recorder = Recorder(backend.rank, backend.size)
        self.has_digests = True
        self.stacks: Stacks | None = None
        self.uid = 0
        self.rank, self.size = backend.rank, backend.size
        can = backend.capabilities()
        self.checks = can.checks and self.size > 1
        # Where transfers carry the lines, small arrays need no payload of theirs.
        has_payload = self.size <= config.INLINE_MAX_RANKS and not self.checks
        self.inline_bytes = inline = config.INLINE_BYTES if has_payload else 0
        self._lines = Lines(backend, inline)
        self.extras, self.payloads = self._lines.extras, self._lines.payloads
        self._is_crossing = False
        self._resumed = self._turn = 0
        self._is_exact = can.exact and self.size > 1
        self.label: str | None = None
        self.remark: str | None = None
        self._broken: str | None = None
        self._closed = self.closing = False
        self._what: Signature | str = "its creation"
        self._known: tuple[Exception | None, int] = (None, 0)
        self._is_leaving = False
        self._left: Signature | str = ""
        self.results = ResultPool()
        self.scattered: dict[tuple[int, int], Any] = {}
        self._possible: set[tuple[str, np.dtype[Any]]] = set()

    @property
    def sequence(self) -> int:
        """Number of calls started."""
        return self._lines.sequence

    @property
    def completed(self) -> int:
        """Number of calls whose lines were exchanged."""
        fast = self.backend.fast
        is_under_way = self._is_crossing or (fast is not None and fast.is_under_way)
        return self.sequence - is_under_way

    @property
    def broken(self) -> str | None:
        """Why no further call can succeed, or None."""
        return self._broken

    @broken.setter
    def broken(self, reason: str) -> None:
        self._broken = reason
        self._stop_fast_calls()

    @property
    def closed(self) -> bool:
        """Whether the communicator was closed."""
        return self._closed

    @closed.setter
    def closed(self, value: bool) -> None:
        self._closed = value
        self._stop_fast_calls()

    def _stop_fast_calls(self) -> None:
        if self.backend.fast is not None:
            self.backend.fast.is_ready = False

    def require(self, op: str, dtype: np.dtype[Any]) -> None:
        """Raise unless `op` has a meaning for `dtype`, and the backend can do it."""
        if isinstance(op, str) and (op, dtype) in self._possible:
            return
        check_op(op, dtype)
        can = self.backend.capabilities()
        how = self.carried(op, dtype)
        if how.op not in can.ops or how.dtype.name not in can.dtypes:
            raise BackendError(
                f"reduction {op!r} of {dtype} on rank {self.rank}/{self.size}: backend"
                f" {self.backend.name!r} has ops {sorted(can.ops)} and dtypes"
                f" {sorted(can.dtypes)}; try backend='mpi'"
            )
        self._possible.add((op, dtype))

    # ------------------------------------------------------------------ the exchange of lines

    def cross(
        self,
        signature: Signature,
        extra: int = 0,
        payload: Array | None = None,
        nbytes: int | None = None,
    ) -> Generator[Request, None, None]:
        """Wait until all ranks are at this call, and check that it is the same one.

        Afterwards ``extras`` and :meth:`payloads` hold what the ranks brought. `nbytes` is what
        this rank brings, for the record of calls whose signature does not tell.
        """
        guards = self._show(signature, self._kind(signature), extra, nbytes, is_all=False)
        yield from self._exchange(guards, payload)

    def guard(self, signature: Signature, transfer: Steps, is_all: bool = True) -> Steps:
        """Cross the gate with the first step of `transfer`; return its result.

        For backends that `checks`. No data is delivered if the ranks' calls differ. `is_all` says
        that no other transfer follows in this call.
        """
        self.backend.guards_next = self._show(signature, self._kind(signature), is_all=is_all)
        return (yield from self._finish(transfer))

    def may_guess(self, nbytes: int) -> bool:
        """Tell whether a result of `nbytes`, if all ranks bring the same, is worth a guess."""
        return self.checks and self.has_digests and nbytes <= _MOST_GUESSED

    def guard_rows(
        self, signature: Signature, length: int, transfer: Steps | None, nbytes: int
    ) -> Generator[Request, None, bool]:
        """Cross the gate with `transfer`, which is right if all ranks' `length` is this rank's.

        Returns whether it was carried out. If not, or without one, ``extras`` has the lengths; any
        other number will do as well.
        """
        if not (self.checks and self.has_digests):
            yield from self.cross(signature, length, nbytes=nbytes)
            return False
        kind = self._kind(signature)
        mine = kind._replace(digest=with_length(kind.digest, length))
        guards = self._show(signature, mine, length, nbytes, is_all=transfer is not None)
        self.backend.guards_next = guards
        try:
            yield from self._crossing() if transfer is None else transfer
        except LinesDiffer:
            if not self._lines.differ_by_length(kind.digest):
                yield from self._explain()
            transfer = None
        self._is_crossing = False
        return transfer is not None

    def resume(self, signature: Signature, transfer: Steps) -> Steps:
        """Go on with a call that the backend began, lines and all, without this gate."""
        self._resumed = self.sequence
        self.arrive(signature)
        return (yield from self._finish(transfer))

    def has_resumed(self, sequence: int) -> bool:
        """Tell whether :meth:`resume` has begun with call `sequence`. **Local.**"""
        return self._resumed >= sequence

    def leave(self, steps: Steps, label: str | None) -> tuple[Signature | str, Request]:
        """Leave the first transfer of a call to the backend, which begins it after others.

        Returns what is called, to `arrive` with when those are over, and the request. **Local.**
        """
        before = self.label
        self.label, self._is_leaving = label, True
        try:
            request = next(steps)
        finally:
            self.label, self._is_leaving = before, False
        return self._left, request

    def arrive(self, what: Signature | str) -> None:
        """Come to the next call, which is under way from now on. **Local.**"""
        self._what = what
        self._known = (None, 0)
        self._turn += 1
        self._is_crossing = True

    def _kind(self, signature: Signature) -> Kind:
        return kind_of(signature, self.label) if self.has_digests else _UNCHECKED

    def _show(
        self,
        what: Signature | str,
        kind: Kind,
        extra: int = 0,
        nbytes: int | None = None,
        is_all: bool = False,
    ) -> bool | Ahead:
        """Count one more call, record it, and fill in this rank's line; or let the backend do so.

        Returns what is to be said to the backend (``guards_next``).
        """
        brought = kind.nbytes if nbytes is None else nbytes
        if self._is_leaving:
            self._left = what
            return Ahead(kind.digest, extra, brought, kind[1:5], not is_all)
        self.arrive(what)
        sequence = self._lines.count(kind.digest, self.peers.failures, extra)
        self.recorder.begin(sequence, kind, brought)
        return True

    def _exchange(
        self, guards: bool | Ahead, payload: Array | None = None
    ) -> Generator[Request, None, None]:
        if payload is not None:
            self._lines.bring(payload)
        self.backend.guards_next = guards
        yield from self._finish(self._crossing())

    def _crossing(self) -> Steps:
        if self.size == 1:
            self._lines.stand_alone()
            return
        yield self.backend.post()
        if not self._lines.are_equal():
            raise LinesDiffer

    def _finish(self, transfer: Steps) -> Steps:
        try:
            result = yield from transfer
        except LinesDiffer:
            yield from self._explain()
        self._is_crossing = False
        return result

    def carried(self, op: str, dtype: np.dtype[Any]) -> Carried:
        """Return how this backend carries a reduction out. **Local.**"""
        return carried(op, dtype, self._is_exact)

    def refuse(self, error: Exception) -> Steps:
        """Take this rank's part in a call whose arguments it refuses, then raise `error`.

        The peers are not left waiting: they see `MismatchError` with this rank's reason, unless
        every rank refused, in which case each raises its own error.
        """
        what = f"a call that it refused: {type(error).__name__}: {error}"
        try:
            yield from self._exchange(self._show(what, _REFUSED))
        except MismatchError:
            pass  # the peers' calls were fine; ours is what has to be mended
        raise self.tell(error)

    def _explain(self) -> Generator[Request, None, NoReturn]:
        self._is_crossing = False
        failures = self._lines.failures.copy()
        text = f"{cut(self._describe(), 500)} at {fingerprint.caller()}"
        if self.peers.last_failure:
            text += f", after it failed with {self.peers.last_failure}"
        calls = yield from self._gather_texts(text)
        message = fingerprint.mismatch_text(calls, self.rank)
        worst = int(failures.argmax())
        if failures[worst] > self.peers.failures:
            raise self.tell(PeerLostError(f"rank {worst} failed alone:\n{message}", rank=worst))
        raise self.tell(MismatchError(message, calls))

    def in_words(self) -> str:
        """Return the call under way as a user would write it, with its number. **Local.**"""
        return f"call {self.sequence}, {self._describe()}"

    def _describe(self) -> str:
        what = self._what
        call = what if isinstance(what, str) else fingerprint.describe(what, self.label)
        return call if self.remark is None else f"{call}, which {self.remark},"

    def _gather_texts(self, text: str) -> Generator[Request, None, dict[int, str]]:
        mine = np.zeros(_TEXT, np.uint8)
        data = np.frombuffer(text.encode()[:_TEXT], np.uint8)
        mine[: data.size] = data
        everyone = np.empty(_TEXT * self.size, np.uint8)
        yield from self.backend.allgather(mine, everyone, [_TEXT] * self.size)
        rows = everyone.reshape(self.size, _TEXT)
        return {r: decode(row.tobytes().rstrip(b"\0")) for r, row in enumerate(rows)}

    def tell(self, error: Exception) -> Exception:
        """Note an error that all ranks hear of together: it needs no notice. **Local.**"""
        self._known = (error, self._turns)
        return error

    def is_known(self, error: BaseException) -> bool:
        """Tell whether all ranks heard of `error` together, in the last call. **Local.**"""
        return error is self._known[0] and self._turns == self._known[1]

    @property
    def _turns(self) -> int:
        """How many calls this program has come to, which the backend may be ahead of."""
        fast = self.backend.fast
        return self._turn + (0 if fast is None else fast.fast_calls)

    # ------------------------------------------------------------------------------- health

    def check_open(self) -> None:
        """Raise if this communicator was closed or is broken."""
        if self.closed:
            raise ClosedError("this communicator (or its strategy) was closed; make a new one")
        if self.broken is not None:
            raise CommunicationError(
                f"the communicator is broken on rank {self.rank}/{self.size} since:"
                f" {self.broken}; make a new strategy on all ranks, or end the job (the last calls"
                " are on standard error, and in communicator.records())"
            )

    def fail(self, error: BaseException, is_end: bool = False) -> None:
        """Tell the peers that a replica function raised on this rank. **Local.**

        An error that all ranks have just heard of together is nothing new to them, unless it
        ends this rank's program.
        """
        if self.size == 1 or self.broken is not None or self.closed:
            return
        if not self.is_known(error) or is_end:
            self.peers.say_failed(error, self.completed)
            self._lines.show_failures(self.peers.failures)  # for calls that do not pass here

    def break_off(self, error: BaseException) -> None:
        """Give up a wait for good, and tell the peers. **Local.**"""
        if self.broken is None and not self.closed:
            self.broken = short(error)
            self.peers.say_broken(error, self.sequence - 1)
            self.recorder.end(is_done=False)
            self.tell_last_calls()

    def tell_last_calls(self) -> None:
        """Show the last calls on standard error, once. **Local.**"""
        self.recorder.drain(is_end=True)
        if self.size > 1:
            # Not by the log, which may be silent here.
            sys.stderr.write(self.recorder.dump())

    def check_peers(self) -> None:
        """Raise if a peer can never reach the call that this rank waits in. **Local.**"""
        self.peers.listen()
        self.peers.check(self.sequence)
