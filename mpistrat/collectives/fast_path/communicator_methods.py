"""The calls of a communicator that native code begins, and Python ends where they do not end soon.

Methods of the communicator begin so (decorator.py), TensorFlow's operations, and the queue of
calls that go on by themselves.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.checking.gate import Gate
from mpistrat.collectives.fast_path.begun_call import BegunCall
from mpistrat.collectives.progress.engine import Engine
from mpistrat.collectives.progress.work import Work
from mpistrat.types import Array

__all__ = ["FastPathMethods"]


class FastPathMethods:
    """A base of the communicator, which sets what is declared here.

    Attributes
    ----------
    fast_calls
        What makes calls natively, where the backend can; else None.
    """

    fast_calls: Any = None
    _backend: Backend
    _gate: Gate
    _engine: Engine
    _label: str | None
    _at_risk: tuple[Any, Any] | None = None  # arrays, or lists of them

    def _allow_fast_calls(self) -> None:
        """Let the backend make the calls of methods itself in the common case, sooner."""
        fast = self._backend.fast
        # Native code reduces exactly; where the backend does not, calls widen dtypes in Python.
        if fast is not None and self._backend.capabilities().exact:
            over = partial(Work.over, self._engine)
            self.fast_calls = fast.attach(self._ticket, self._finish, self._lose, over)
            fast.has_digests = self._gate.has_digests
            fast.record_in(self._gate.call_log.recorder.ring)
            self._engine.allow_fast_calls()

    def allreduce_natively(self, array: Array, op: str) -> tuple[int, int, int] | None:
        """Return how native code begins :meth:`allreduce_soon` for flat arrays like `array`.

        Parameters
        ----------
        array
            Of any length, since its dtype alone counts. Those of the calls are contiguous.
        op
            As of :meth:`allreduce`.

        Returns
        -------
        tuple of int, or None
            A function and its first two arguments (`allreduce_now` in kernels/calls), valid for
            as long as this communicator exists; None where the backend has no such thing, or not
            for this op and dtype.

        Notes
        -----
        **Local.** What that function begins and does not end is for :meth:`carry_on`.
        """
        fast = self._backend.fast
        return None if fast is None or self.fast_calls is None else fast.natively(array, op)

    def carry_on(
        self, status: int, sequence: int, array: Array, op: str, out: Array
    ) -> Work[Array]:
        """Take over an all-reduce that native code has begun.

        Parameters
        ----------
        status
            Its MpistratStatus (kernels/include/mpistrat/calls.h): waiting, or a mismatch.
        sequence
            The number of the call, as the native function gave it.
        array, op
            What is reduced, and with what; as it was begun.
        out
            Where the result goes, of the shape and dtype of `array`. Neither may be changed or
            freed before the work is over.

        Returns
        -------
        Work
            Ends the call; its result is `out`. To be waited for, also where the call has failed.

        Raises
        ------
        CommunicationError
            Another call broke the communicator meanwhile.
        ClosedError
            The communicator was closed meanwhile.

        Notes
        -----
        **Local.** Once for each call that has begun and not ended.
        """
        fast = self._backend.fast
        if fast is None:
            raise AssertionError("only a backend with native calls has begun one")
        work: Work[Array] = fast.end(status, sequence, array, op, out)
        return work

    def _ticket(self, *call: Any) -> tuple[int, int, int, int, int, int]:
        return BegunCall(*call).ticket(self._gate, self._label)

    def _finish(self, status: int, call: tuple[Any, ...], out: Any, is_given: bool) -> Any:
        """End a native call as any other one: with a deadline, and with errors in words."""
        begun_call = BegunCall(*call)
        # If this fails, the kernels may still write to them.
        self._at_risk = (begun_call.array, out)
        steps = begun_call.steps(self._gate, out, is_given)
        fast = self._backend.fast
        begun = fast.adopt() if fast is not None and begun_call.is_started else None
        if begun is not None:  # it is under way, and others can be queued behind it
            return self._engine.take_over(self._until(steps), self._label, begun)
        resumed = self._until(self._gate.resume(status, steps))
        # The kernels have counted this call (`fast_calls`), so that the engine must not.
        work = self._engine.start(resumed, self._label, is_counted=False)
        return work if begun_call.is_started else work.wait(begun_call.timeout)

    def _until(self, steps: Steps) -> Steps:
        result = yield from steps
        self._at_risk = None
        return result

    def _lose(self, sequence: int, error: BaseException, array: Any, out: Any) -> None:
        """See to it that peers hear of a fast call whose end failed here, whatever the error."""
        self._at_risk = (array, out)
        self._engine.lose(sequence, error)
