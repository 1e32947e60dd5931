"""`Work`: a collective that was started and can be waited for."""

from __future__ import annotations

import sys
from numbers import Real
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from mpistrat.collectives.backends.base import QueuedRequest, Request, SleepingRequest, Steps
from mpistrat.errors import UsageError

if TYPE_CHECKING:
    from mpistrat.collectives.progress.engine import Engine

__all__ = ["Awaited", "Work", "abandon"]

T = TypeVar("T")

_MOMENT_S, _LOOKS = 1e-4, 50  # how long a transfer is waited for that should end at once

_abandoned: list[Any] = []
"""Transfers that were given up; MPI may still write to their buffers, so they are kept."""


def abandon(transfer: Any) -> None:
    """Keep a transfer that was given up, with its buffers, for as long as this process lives."""
    _abandoned.append(transfer)


class Awaited(Protocol):
    """What the engine can wait for: a work, or a moment of one."""

    @property
    def done(self) -> bool:
        """Whether there is nothing left to wait for."""
        ...


class Work(Generic[T]):
    """A collective that was started; works of a communicator finish in the order of their start.

    Attributes
    ----------
    done
        Whether it is over, successfully or not.
    request
        What it waits for, once it has begun.
    is_ahead
        Whether the backend begins its first transfer by itself.
    """

    __slots__ = (
        "_engine",
        "_error",
        "_first",
        "_is_told",
        "_label",
        "_result",
        "_steps",
        "_what",
        "done",
        "is_ahead",
        "request",
    )

    def __init__(self, engine: Engine, steps: Steps, label: str | None) -> None:
        self._engine = engine
        self.is_ahead = False
        self._what: Any = None
        self._first: Any = None  # what the backend began by itself
        self._steps = steps
        self._label = label
        self.request: Request | None = None
        self._result: T | None = None
        self._error: Exception | None = None
        self._is_told = False
        self.done = False

    @classmethod
    def over(cls, engine: Engine, result: T) -> Work[T]:
        """Return the work of a call that is over, and has this result. **Local.**"""
        work: Work[T] = cls(engine, iter(()), None)  # type: ignore[arg-type]
        work._result = result
        work.done = True
        return work

    def test(self) -> bool:
        """Advance without waiting; return whether the call is over. **Local.**"""
        if not self.done and not self._engine.poll():
            self._engine.glance()
        return self.done

    def check_peers(self) -> None:
        """Raise if the peers can never come to the call under way. **Local.**"""
        self._engine.check_peers()

    def wait(self, timeout: float | None = None) -> T:
        """Wait until the call is over and return its result. **Collective**, blocks.

        Parameters
        ----------
        timeout
            Seconds from now; default ``MPISTRAT_TIMEOUT``.

        Raises
        ------
        CommunicationTimeoutError
            The deadline passed; the message names the ranks that were not there. The communicator
            is broken then: whether the call is over cannot be asked by waiting for a moment, but
            by :meth:`test`.
        PeerLostError
            Another rank failed or left.
        MismatchError
            The ranks called different things.
        """
        is_number = isinstance(timeout, Real) and not isinstance(timeout, bool)
        if timeout is not None and not (is_number and timeout > 0):
            raise UsageError(f"timeout={timeout!r}; expected seconds above 0, or None")
        if not self.done:
            self._engine.wait(self, timeout)
        if self._error is not None:
            self._is_told = True
            raise self._error
        return self._result  # type: ignore[return-value]

    @property
    def error(self) -> Exception | None:
        """What :meth:`wait` will raise, if the call is over and has failed. **Local.**"""
        return self._error

    def __del__(self) -> None:
        """Show an error that nobody waited for; not by the log, which may be silent here."""
        error = getattr(self, "_error", None)  # an interrupt may have struck before it had one
        if error is not None and not self._is_told:
            gate = self._engine.gate
            sys.stderr.write(
                f"[mpistrat] a call of rank {gate.names.of(gate.rank)} that nobody waited for:"
                f" {error}\n"
            )

    def leave(self, begun: QueuedRequest | None = None) -> None:
        """Let the backend begin the call, after those before it; their works go first.

        Or let it carry on with what it has `begun`.
        """
        self.is_ahead = True
        try:
            self._what, self._first = self._engine.gate.leave(self._steps, self._label, begun)
            self.request = self._first
        except Exception as error:  # noqa: BLE001 - it is kept, and raised by wait()
            self._error = self._engine.take(error)
            self.done = True

    def _arrive(self) -> None:
        if self._what is not None:
            self._engine.call_log.arrive(self._what)
            self._what = None

    def advance(self, is_awaited: bool = False) -> bool:
        """Go as far as is possible without waiting; return whether the call is over.

        With `is_awaited` each transfer is waited for, for a moment.
        """
        # The steps read it when they begin a transfer; the communicator may have another since.
        self._engine.call_log.label = self._label
        self._arrive()
        try:
            while self.request is None or self._is_over(self.request, is_awaited):
                self.request = next(self._steps)
        except StopIteration as stop:
            self._result = stop.value
            self._record_end(is_done=True)
        except Exception as error:  # noqa: BLE001 - it is kept, and raised by wait()
            self._record_end(is_done=False)
            self._error = self._engine.take(error)
        else:
            return False
        # Last: a call that begins overwrites the table of headers, which these steps have read.
        if self._first is not None and self._first.holds_others:
            self._engine.let_others_begin()
        self.done = True
        return True

    @staticmethod
    def _is_over(request: Request, is_awaited: bool) -> bool:
        if not is_awaited:
            return request.Test()
        if isinstance(request, SleepingRequest):
            return request.sleep(_MOMENT_S)
        return any(request.Test() for _ in range(_LOOKS))

    def _record_end(self, is_done: bool) -> None:
        recorder = self._engine.call_log.recorder
        # The kernels leave the record of a call that holds the queue under way, for this to end.
        if self._first is None or self._first.holds_others:
            recorder.end(is_done)
        else:  # the backend has recorded it
            recorder.drain()

    def give_up(self, error: Exception) -> None:
        """End the call with `error`, keeping alive what MPI may still write to."""
        abandon((self.request, self._steps))
        self._is_told = True  # whoever gave up tells it
        self._error = error
        self.done = True
