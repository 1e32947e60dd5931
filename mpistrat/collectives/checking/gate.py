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
from collections.abc import Callable, Generator
from typing import Any, NoReturn, TypeAlias

import numpy as np

from mpistrat import config
from mpistrat.collectives.arrays.buffer_pool import ResultPool
from mpistrat.collectives.backends.base import (
    Backend,
    Header,
    HeadersDiffer,
    QueuedHeader,
    Request,
    Steps,
)
from mpistrat.collectives.backends.control import Control
from mpistrat.collectives.checking import fingerprint
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.headers import Headers, with_length
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

__all__ = ["Gate", "Transfer"]

Transfer: TypeAlias = Callable[..., Steps]
"""A transfer of the backend with its arguments, as `functools.partial` makes it."""

_TEXT = 1024
_MOST_GUESSED = 1 << 30  # bytes of a result that is made before its length is known

_REFUSED = Kind(fingerprint.INVALID, text_number("a refused call"), 0, 0, 0, 0)
_UNCHECKED = Kind(0, 0, 0, 0, 0, 0)


class Gate:
    """One communicator's sequence of calls, and what is known of its peers' health.

    Attributes
    ----------
    carries_headers
        Whether transfers of this backend can carry the headers themselves (:meth:`carry`).
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

    def __init__(self, backend: Backend, control: Control) -> None:
        self.backend, self.control = backend, control
        self._post = control.headers.post
        self.peers = Peers(backend, control)
        self.recorder = Recorder(backend.rank, backend.size)
        self.has_digests = True
        self.stacks: Stacks | None = None
        self.uid = 0
        self.rank, self.size = backend.rank, backend.size
        can = backend.capabilities()
        self.carries_headers = can.carries_headers and self.size > 1
        # Where transfers carry the lines, small arrays need no payload of theirs.
        has_payload = self.size <= config.INLINE_MAX_RANKS and not self.carries_headers
        self.inline_bytes = inline = config.INLINE_BYTES if has_payload else 0
        self._headers = Headers(control.headers, inline)
        self.extras, self.payloads = self._headers.extras, self._headers.payloads
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
        return self._headers.sequence

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
        header = self._show(signature, self._kind(signature), extra, nbytes, is_all=False)
        yield from self._exchange(header, payload)

    def carry(
        self,
        signature: Signature,
        transfer: Transfer,
        *,
        extra: int = 0,
        is_empty: bool = False,
        is_all: bool = True,
    ) -> Steps:
        """Cross the gate and carry `transfer` out; return its result.

        Where the backend carries headers this is one step, and no data is delivered if the ranks'
        calls differ. Elsewhere the gate is crossed first.

        Parameters
        ----------
        signature
            What must agree.
        transfer
            Begins the transfer; ``header=`` is added where the backend carries headers.
        extra
            See :meth:`cross`; what the others gave is known only where the gate is crossed first.
        is_empty
            There is no data: nothing is left to do once the gate was crossed.
        is_all
            No other transfer follows in this call.
        """
        if self.carries_headers:
            header = self._show(signature, self._kind(signature), is_all=is_all)
            return (yield from self._finish(transfer(header=header)))
        yield from self.cross(signature, extra)
        return None if is_empty else (yield from transfer())

    def is_inline(self, nbytes: int) -> bool:
        """Tell whether a reduction of so many bytes travels with the header, as its payload."""
        return not self.carries_headers and nbytes <= self.inline_bytes

    def may_guess(self, nbytes: int) -> bool:
        """Tell whether a result of `nbytes`, if all ranks bring the same, is worth a guess."""
        return self.carries_headers and self.has_digests and nbytes <= _MOST_GUESSED

    def carry_rows(
        self, signature: Signature, length: int, transfer: Transfer | None, nbytes: int
    ) -> Generator[Request, None, bool]:
        """Cross the gate with `transfer`, which is right if all ranks' `length` is this rank's.

        Returns whether it was carried out. If not, or without one, ``extras`` has the lengths; any
        other number will do as well.
        """
        if not (self.carries_headers and self.has_digests):
            yield from self.cross(signature, length, nbytes=nbytes)
            return False
        kind = self._kind(signature)
        mine = kind._replace(digest=with_length(kind.digest, length))
        header = self._show(signature, mine, length, nbytes, is_all=transfer is not None)
        try:
            yield from self._crossing(header) if transfer is None else transfer(header=header)
        except HeadersDiffer:
            if not self._headers.differ_by_length(kind.digest):
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
    ) -> Header:
        """Count one more call, record it and fill in its header; or let the backend do so.

        Returns what the first transfer of the call is given.
        """
        brought = kind.nbytes if nbytes is None else nbytes
        if self._is_leaving:
            self._left = what
            return QueuedHeader(kind.digest, extra, brought, kind[1:5], not is_all)
        self.arrive(what)
        sequence = self._headers.count(kind.digest, self.peers.failures, extra)
        self.recorder.begin(sequence, kind, brought)
        return True

    def _exchange(
        self, header: Header, payload: Array | None = None
    ) -> Generator[Request, None, None]:
        if payload is not None:
            self._headers.bring(payload)
        yield from self._finish(self._crossing(header))

    def _crossing(self, header: Header) -> Steps:
        if self.size == 1:
            self._headers.stand_alone()
            return
        yield self._post(header)
        if not self._headers.are_equal():
            raise HeadersDiffer

    def _finish(self, transfer: Steps) -> Steps:
        try:
            result = yield from transfer
        except HeadersDiffer:
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
        failures = self._headers.failures.copy()
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
            self._headers.show_failures(self.peers.failures)  # for calls that do not pass here

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
