"""The fast path of backends that are made of the kernels (kernels/calls)."""

from __future__ import annotations

from typing import Any

from mpistrat.collectives.backends.kernel_calls.requests import QueuedCall
from mpistrat.types import Array

__all__ = ["NativeFastCalls"]


class NativeFastCalls:
    """See `FastCalls` of backends/fast_path.py.

    Attributes
    ----------
    may_queue
        Whether a thread of the kernels may carry calls out.
    """

    def __init__(self, node: Any, may_queue: bool) -> None:
        self._node = node
        self._native: Any = None
        self.may_queue = may_queue

    @property
    def is_ready(self) -> bool:
        """Whether fast calls may be made."""
        return bool(self._node.is_ready)

    @is_ready.setter
    def is_ready(self, value: bool) -> None:
        self._node.is_ready = value

    @property
    def is_busy(self) -> bool:
        """Whether a call of the node is under way."""
        return bool(self._node.is_busy)

    @property
    def is_under_way(self) -> bool:
        """Whether a fast call is under way."""
        return bool(self._node.is_busy and self._node.is_fast)

    @property
    def label(self) -> int:
        """What the calls are made for, as a number."""
        return int(self._node.label)

    @label.setter
    def label(self, value: int) -> None:
        self._node.label = value

    @property
    def has_digests(self) -> bool:
        """Whether calls are compared between the ranks."""
        return bool(self._node.has_digests)

    @has_digests.setter
    def has_digests(self, value: bool) -> None:
        self._node.has_digests = value

    def record_in(self, ring: Any) -> None:
        """Record the calls from now on."""
        self._node.record_in(ring)

    @property
    def fast_calls(self) -> int:
        """How many were made."""
        return int(self._node.fast_calls)

    def attach(self, ticket: Any, finish: Any, lose: Any, over: Any) -> Any:
        """Return the compiled object that makes the calls."""
        self._native = self._node.fast_calls_of(ticket, finish, lose, over)
        return self._native

    def natively(self, array: Array, op: str) -> tuple[int, int, int] | None:
        """Ask the compiled object."""
        how: tuple[int, int, int] | None = self._native.native(array, op)
        return how

    def end(self, status: int, sequence: int, array: Array, op: str, out: Array) -> Any:
        """End it as one that the compiled object has begun itself."""
        return self._native.end(status, sequence, array, op, out)

    def adopt(self) -> QueuedCall | None:
        """Let the kernels carry on with the fast call under way, and with calls behind it."""
        return QueuedCall.adopted(self._node)

    def know_scatter(self, root: int, like: Array) -> None:
        """Tell the compiled object."""
        self._native.know_scatter(root, like)

    def resume(self) -> None:
        """Let queued calls begin again."""
        self._node.resume()

    def drop(self) -> None:
        """Forget the queued calls that have not begun, and no longer advance what has."""
        self._node.drop()
