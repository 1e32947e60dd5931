"""The protocol of the fast path: all-reduces that begin without the gate's and engine's Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mpistrat.collectives.backends.base import Steps
from mpistrat.types import Array

__all__ = ["FastCalls"]


class FastCalls(Protocol):
    """The state of calls that a backend can make without the gate's and the engine's Python.

    Attributes
    ----------
    is_ready
        Whether such calls may be made: the communicator is open and sound, and nothing is queued.
    label
        A number for what the calls are made for (recorder.py).
    has_digests
        Whether calls are compared between the ranks.
    may_queue
        Whether transfers can be left to the backend (see `QueuedHeader` of base.py).
    """

    is_ready: bool
    label: int
    may_queue: bool

    @property
    def is_busy(self) -> bool:
        """Whether any call of the backend is under way."""
        ...

    @property
    def is_under_way(self) -> bool:
        """Whether a fast call is under way."""
        ...

    has_digests: bool

    @property
    def fast_calls(self) -> int:
        """How many were made."""
        ...

    def allreduce(
        self,
        general: Callable[..., Any],
        digest: Callable[[Array, str], int],
        finish: Callable[[int, Array, str, Array], Any],
        lose: Callable[[int, BaseException, Array, Array], None],
    ) -> Callable[..., Any]:
        """Return a callable in place of ``communicator.allreduce`` or ``allreduce_soon``.

        Parameters
        ----------
        general
            That method; called for all that is not the common case.
        digest
            Gives the fingerprint of a call from its array and op.
        finish
            Ends a call that did not end soon, or well, from its status, array, op and result.
        lose
            Told of each error of `finish` before it is raised, which may be an interrupt that
            kept `finish` from doing anything: its call's number, the error, array and result.
        """
        ...

    def natively(
        self, callable_: Callable[..., Any], array: Array, op: str
    ) -> tuple[int, int, int] | None:
        """Return how native code makes the calls of what :meth:`allreduce` has returned.

        None if it cannot; see ``Communicator.allreduce_natively``. Of a call that is not over then
        `callable_` has a method ``end`` (status, sequence, array, op, out).
        """
        ...

    def resume(self) -> None:
        """Let transfers begin again that wait after one that holds, or differs between ranks."""
        ...

    def drop(self) -> None:
        """Forget the queued calls that have not begun, and no longer advance what has."""
        ...

    def record_in(self, ring: Any) -> None:
        """Record the calls in `ring` (recorder.py) from now on; None: no more."""
        ...

    def carry_on(self, status: int, *arrays: Array) -> Steps:
        """Go on with a call that did not end soon, or whose headers differ; keeps its arrays."""
        ...
