"""The protocol of the fast path: collectives that begin without the gate's and engine's Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mpistrat.collectives.backends.base import QueuedRequest
from mpistrat.types import Array

__all__ = ["FastCalls"]


class FastCalls(Protocol):
    """The state of calls that a backend can make without the gate's and the engine's Python.

    Attributes
    ----------
    is_ready
        Whether such calls may be made: the communicator is open and sound, and nothing is queued.
    label
        A number for what the calls are made for (call_record.py).
    has_digests
        Whether calls are compared between the ranks.
    may_queue
        Whether transfers can be left to the backend (see `Ticket` of base.py).
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

    def attach(
        self,
        ticket: Callable[..., tuple[int, int, int, int, int, int]],
        finish: Callable[..., Any],
        lose: Callable[[int, BaseException, Array, Array], None],
        over: Callable[[Any], Any],
    ) -> Any:
        """Return what makes the calls of a communicator (kernels/bindings/fast_path/fast_calls.h).

        Parameters
        ----------
        ticket
            Tells how a call is shown and recorded, from its method, array, op and root.
        finish
            Ends a call that did not end soon, or well, from its status, those four, the timeout
            and the number of its transfer under way in a tuple, its result's array, and whether
            that was given by the user.
        lose
            Told of each error of `finish` before it is raised, which may be an interrupt that
            kept `finish` from doing anything: its call's number, the error, array and result.
        over
            Makes, of a result, what nonblocking calls return.
        """
        ...

    def natively(self, array: Array, op: str) -> tuple[int, int, int] | None:
        """Return how native code makes all-reduces of flat arrays like `array`.

        None if it cannot; see ``Communicator.allreduce_natively``. Of a call that is not over then
        :meth:`end` is called.
        """
        ...

    def end(self, status: int, sequence: int, array: Array, op: str, out: Array) -> Any:
        """End an all-reduce that native code has begun, by `finish`."""
        ...

    def adopt(self) -> QueuedRequest | None:
        """Queue the fast call under way, for the backend to carry on with; None if it cannot."""
        ...

    def know_scatter(self, root: int, like: Array) -> None:
        """Take note of what `root` scatters, which the other ranks can only remember."""
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
