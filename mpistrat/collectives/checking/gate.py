"""The gate: before data moves, every rank posts a header of the call that it makes.

Each call starts with one small exchange of headers (headers.py): sequence, digest and failures
must be equal on all ranks; `extra` is a number that every rank may want to know of every other
(the length of a ragged axis). If headers differ, a second exchange carries each rank's call in
words, and every rank raises the same report. A small reduction rides in the payload and needs no
further message.

health/call_log.py records what was called, health/communicator_state.py what is known of peers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NoReturn, TypeAlias

from mpistrat import built_in_sizes, config
from mpistrat.collectives.arrays.gpu_devices import memory_problem
from mpistrat.collectives.arrays.results import new_like
from mpistrat.collectives.backends.base import (
    Backend,
    BegunHeader,
    Header,
    HeadersDiffer,
    QueuedRequest,
    Request,
    Steps,
    Ticket,
)
from mpistrat.collectives.backends.control import Control
from mpistrat.collectives.checking import fingerprint
from mpistrat.collectives.checking.call_site import caller
from mpistrat.collectives.checking.difference_error import (
    difference_error,
    failed_alone,
    memory_error,
)
from mpistrat.collectives.checking.fingerprint import Signature
from mpistrat.collectives.checking.gather_calls import gather_texts, most_bytes
from mpistrat.collectives.checking.headers import Headers, with_length
from mpistrat.collectives.checking.reduction_check import ReductionCheck
from mpistrat.collectives.health.call_log import CallLog
from mpistrat.collectives.health.call_record import Kind, kind_of, text_number
from mpistrat.collectives.health.communicator_state import Health
from mpistrat.collectives.health.rank_names import RankNames
from mpistrat.collectives.health.recorder import Recorder
from mpistrat.errors import BackendUnavailableError, MismatchError
from mpistrat.types import Array

__all__ = ["Gate", "Transfer"]

Transfer: TypeAlias = Callable[..., Steps]
"""A transfer of the backend with its arguments, as `functools.partial` makes it."""

_MOST_GUESSED = 1 << 30  # bytes of a result that is made before its length is known

_REFUSED = Kind(fingerprint.INVALID, text_number("a refused call"), 0, 0, 0, 0)
_NO_MEMORY = Kind(fingerprint.NO_MEMORY, text_number("a call without memory"), 0, 0, 0, 0)
_UNCHECKED = Kind(0, 0, 0, 0, 0, 0)


class Gate:
    """The check that each call of one communicator passes.

    Of the methods that return `Steps`, most begin at once and return what is left: each generator
    around another one costs time in each call.

    Attributes
    ----------
    backend, control
        What moves the data, and what the headers.
    host_backend
        What moves numbers of the host: here the backend itself (see device_gate.py).
    call_log, health
        What this rank has called, and what is known of the ranks.
    reductions
        What the backend can reduce.
    names
        How texts name the ranks.
    has_digests
        Whether the ranks compare what they call (``MPISTRAT_CHECKS``).
    bucket_bytes
        Size of the buckets of lists for which none is named (``MPISTRAT_FUSION_BYTES``).
    carries_headers
        Whether transfers of this backend can carry the headers themselves (:meth:`carry`).
    inline_bytes
        Reductions of up to so many bytes travel with the headers, as their payload.
    extras
        The last words of all ranks' headers, once they were exchanged.
    device_backend
        What moves arrays on GPUs, once a call has had some (device_gate.py); else None.
    device_reductions
        What that can reduce.
    """

    def __init__(self, backend: Backend, control: Control, names: RankNames | None = None) -> None:
        self.backend, self.control = backend, control
        self.host_backend = backend
        self.rank, self.size = backend.rank, backend.size
        self.names = names = names or RankNames(self.rank, self.size)
        self.reductions = ReductionCheck(backend)
        self.has_digests = True
        self.bucket_bytes = config.DEFAULT_FUSION_BYTES
        self.carries_headers = backend.capabilities().carries_headers and self.size > 1
        payload_bytes = (
            built_in_sizes.INLINE_BYTES if self.size <= built_in_sizes.INLINE_MAX_RANKS else 0
        )
        # Where transfers carry the headers, not even empty arrays need a payload.
        self.inline_bytes = -1 if self.carries_headers else payload_bytes
        self._headers = headers = Headers(control.headers, max(self.inline_bytes, 0))
        self.extras, self.payloads = headers.extras, headers.payloads
        recorder = Recorder(self.rank, self.size, names.here)
        self.call_log = CallLog(headers, recorder, self.size, backend.fast)
        self.health = Health(backend, control, headers, self.call_log, names)
        self.device_backend: Any = None
        self.device_reductions: Any = None
        self._begun: BegunHeader | None = None  # what `resume` goes on with
        self._is_leaving = False  # whether `leave` asks for the first transfer of a call
        self._left: Signature | str = ""

    def run(self, steps: Steps) -> Steps:
        """Return `steps`: those of calls on a GPU need it to be the current one."""
        return steps

    # ---------------------------------------------------------------- the exchange of headers

    def cross(
        self,
        signature: Signature,
        extra: int = 0,
        payload: Array | None = None,
        nbytes: int | None = None,
    ) -> Steps:
        """Wait until all ranks are at this call, and check that it is the same one.

        Afterwards ``extras`` and :meth:`payloads` hold what the ranks brought. `nbytes` is what
        this rank brings, for the record of calls whose signature does not tell.
        """
        header = self._show(signature, self._kind(signature), extra, nbytes, is_all=False)
        if payload is not None:
            self._headers.bring(payload)
        return self._finish(self._crossing(header))

    def carry(
        self,
        signature: Signature,
        transfer: Transfer,
        *,
        extra: int = 0,
        nbytes: int | None = None,
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
        nbytes
            See :meth:`cross`.
        extra
            See :meth:`cross`; what the others gave is known only where the gate is crossed first.
        is_empty
            There is no data: nothing is left to do once the gate was crossed.
        is_all
            No other transfer follows in this call.
        """
        if self.carries_headers:
            kind = self._kind(signature)
            header = self._show(signature, kind, nbytes=nbytes, is_all=is_all)
            return self._finish(transfer(header=header))
        crossing = self.cross(signature, extra, nbytes=nbytes)
        return crossing if is_empty else _one_after_the_other(crossing, transfer)

    def may_guess(self, nbytes: int) -> bool:
        """Tell whether a result of `nbytes`, if all ranks bring the same, is worth a guess."""
        # Only digests, with the length in them, show that the others' lengths are not this one's.
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
        # The length is mixed into the digest, so that headers differ where lengths do: then the
        # backend delivers nothing, and the true lengths are in the table of headers.
        kind = self._kind(signature)
        mine = kind._replace(digest=with_length(kind.digest, length))
        header = self._show(signature, mine, length, nbytes, is_all=transfer is not None)
        differ = False
        try:
            yield from self._crossing(header) if transfer is None else transfer(header=header)
        except HeadersDiffer:
            differ = not self._headers.differ_by_length(kind.digest)
            transfer = None
        if differ:
            yield from self._explain()
        self.call_log.is_crossing = False
        return transfer is not None

    def new_like(self, array: Array, count: int) -> Steps:
        """Return a new flat array like `array`, once the ranks have told its length."""
        return new_like(array, count)
        yield

    def resume(self, status: int, steps: Steps) -> Steps:
        """Go on with a call whose first transfer the backend has begun, without this gate."""
        self._begun = BegunHeader(status)
        try:
            request = next(steps)  # up to that transfer, whose `_show` sees it
        finally:
            self._begun = None
        yield request
        return (yield from steps)

    def leave(
        self, steps: Steps, label: str | None, begun: QueuedRequest | None = None
    ) -> tuple[Signature | str, Request]:
        """Leave the first transfer of a call to the backend, which begins it after others.

        Of one that the backend has `begun` by itself, go on with that. Returns what is called, for
        `CallLog.arrive` when those before are over, and the request. **Local.**
        """
        before = self.call_log.label
        self.call_log.label, self._is_leaving = label, True
        self._begun = None if begun is None else BegunHeader(0, begun)
        try:
            # Runs the operation up to its first transfer, whose `_show` sees the flag.
            request = next(steps)
        finally:
            self.call_log.label, self._is_leaving, self._begun = before, False, None
        return self._left, request

    def _kind(self, signature: Signature) -> Kind:
        return kind_of(signature, self.call_log.label) if self.has_digests else _UNCHECKED

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
        if self._is_leaving:  # calls before this one may not be over
            self._left = what
            if self._begun is not None:
                return self._begun
            return Ticket(kind.digest, extra, brought, kind[1:5], not is_all, is_queued=True)
        if self._begun is not None:
            self.call_log.resume(what)
            return self._begun
        if self.carries_headers:
            self.call_log.arrive(what)
            return Ticket(kind.digest, extra, brought, kind[1:5])
        self.call_log.begin(what, kind, self.health.peers.failures, extra, brought)
        return True

    def _crossing(self, header: Header) -> Steps:
        if self.size == 1:
            self._headers.stand_alone()
            return
        yield self.control.headers.post(header)
        if not self._headers.are_equal():
            raise HeadersDiffer

    def _finish(self, transfer: Steps) -> Steps:
        differ = False
        try:
            result = yield from transfer
        except HeadersDiffer:
            differ = True
        if differ:  # out of the handler: the user's error has nothing before it
            yield from self._explain()
        self.call_log.is_crossing = False
        return result

    def refuse(self, error: Exception) -> Steps:
        """Take this rank's part in a call whose arguments it refuses, then raise `error`.

        The peers are not left waiting: they see `MismatchError` with this rank's reason, unless
        every rank refused, in which case each raises its own error. Where a GPU has not enough
        memory, all ranks raise as of :meth:`lack_memory`.
        """
        problem = memory_problem(error)
        if problem is not None:
            yield from self.lack_memory(problem)
        what = f"a call that it refused: {type(error).__name__}: {error}"
        try:
            yield from self._finish(self._crossing(self._show(what, _REFUSED)))
        except MismatchError:
            pass  # the peers' calls were fine; ours is what has to be mended
        raise self.call_log.mark_known(error)

    def lack_memory(self, problem: str) -> Steps:
        """Take this rank's part in a call for which its GPU has not enough memory, and raise.

        Raises
        ------
        BackendUnavailableError
            On all ranks, with the problems of those that have one.
        """
        yield from self._finish(self._crossing(self._show(problem, _NO_MEMORY)))
        error = BackendUnavailableError(
            f"rank {self.names.of(self.rank)}: {problem}"
        )  # and so have all
        raise self.call_log.mark_known(error)

    def _explain(self) -> Generator[Request, None, NoReturn]:
        self.call_log.is_crossing = False
        # Copies: these are views of the table, which goes on changing.
        failures, digests = self._headers.failures.copy(), self._headers.digests.copy()
        # Room for the rest of the text, of which the line matters most.
        most = most_bytes(self.size) // 2
        text = f"{self.call_log.describe(most)} at {caller()}"
        if self.rank in failed_alone(failures):  # what all ranks failed with has been mended
            text += f", after it failed with {self.health.peers.last_failure}"
        # All ranks have compared the same table, so that all of them come to this gathering.
        calls = yield from gather_texts(self.backend, text)
        if fingerprint.NO_MEMORY in digests:
            raise self.call_log.mark_known(memory_error(calls, self.names))
        mine = self.health.peers.failures
        error = difference_error(calls, failures, self.rank, mine, self.names)
        raise self.call_log.mark_known(error)


def _one_after_the_other(crossing: Steps, transfer: Transfer) -> Steps:
    yield from crossing
    return (yield from transfer())
