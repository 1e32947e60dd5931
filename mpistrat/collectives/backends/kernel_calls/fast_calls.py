"""The fast path of backends that are made of the kernels (kernels/calls)."""

from __future__ import annotations

from typing import Any

from mpistrat.collectives.backends.base import HeadersDiffer, Steps
from mpistrat.collectives.backends.kernel_calls.requests import MISMATCH, WAITING, Call
from mpistrat.types import Array

__all__ = ["NativeFastCalls"]


class NativeFastCalls:
    """See `FastCalls` of fast_path.py.

    Attributes
    ----------
    may_queue
        Whether a thread of the kernels may carry calls out.
    """

    def __init__(self, node: Any, may_queue: bool) -> None:
        self._node = node
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

    def allreduce(self, general: Any, digest: Any, finish: Any, lose: Any) -> Any:
        """Return the compiled callable."""
        return self._node.fast_allreduce(general, digest, finish, lose)

    def natively(self, callable_: Any, array: Array, op: str) -> tuple[int, int, int] | None:
        """Ask the compiled callable."""
        how: tuple[int, int, int] | None = callable_.native(array, op)
        return how

    def resume(self) -> None:
        """Let queued calls begin again."""
        self._node.resume()

    def drop(self) -> None:
        """Forget the queued calls that have not begun, and no longer advance what has."""
        self._node.drop()

    def carry_on(self, status: int, *arrays: Array) -> Steps:
        """Go on with a call; whoever gives it up keeps these steps, and so its arrays."""
        call = Call(self._node, None, status)
        if status != WAITING:
            self._node.end()  # its headers are still to be read, by this call before any other
        yield call
        # Up to here this generator has kept them alive: the kernels read and write them.
        del arrays
        if call.status == MISMATCH:
            raise HeadersDiffer
