"""Calls of the kernels, as the requests and short ways that base.py describes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat.collectives.base import LinesDiffer, Steps
from mpistrat.collectives.native import kernels
from mpistrat.types import Array, ArrayLike

__all__ = ["Call", "NativeFastCalls", "NativeQueuedCall", "Spec"]

# MpistratKind, MpistratStatus and MpistratOp of kernels/include/mpistrat.
CROSS, ALLREDUCE, REDUCE, REDUCE_SCATTER, BCAST, ALLGATHER = 0, 1, 2, 3, 4, 5
GATHER, SCATTER, ALLTOALL = 6, 7, 8
WAITING, MISMATCH = 1, 2
_OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "and": 4, "or": 5, "xor": 6}


@dataclass
class Spec:
    """What the kernels are told of a call (MpistratSpec); counts are elements by rank."""

    kind: int
    send: Sequence[Array] = ()
    recv: Sequence[Array] = ()
    crosses: bool = False
    op: str = "sum"
    root: int = 0
    send_counts: Sequence[int] = ()
    recv_counts: Sequence[int] = ()
    most: int = 0
    payload_bytes: int = 0

    def start(self, node: Any) -> None:
        """Start the call."""
        first = next(iter((*self.send, *self.recv)), None)
        itemsize = 1 if first is None else first.itemsize
        is_mean = self.op == "mean"
        node.start(
            *(self.kind, self.crosses, _OPS["sum" if is_mean else self.op]),
            *(0 if first is None else kernels().dtype_of(first), self.root),
            *(node.size if is_mean else 1, self.send, self.recv),
            [int(n) * itemsize for n in self.send_counts],
            [int(n) * itemsize for n in self.recv_counts],
            *(self.most * itemsize, self.payload_bytes),
        )


class Call:
    """The request of one call of the node; starts it as soon as the node is free."""

    def __init__(self, node: Any, spec: Spec | None, status: int = WAITING) -> None:
        self._node, self._spec = node, spec
        self.status = status

    def Test(self) -> bool:  # noqa: N802 - see Request
        """Advance without waiting; return whether the call is over."""
        return self.sleep(0.0)

    def detach(self) -> None:
        """Let a native thread carry on with the call."""
        if self._spec is None and self.status == WAITING:
            self._node.detach()

    def sleep(self, seconds: float) -> bool:
        """Advance for about `seconds`; return whether the call is over."""
        if self._spec is not None:
            if self._node.is_busy:  # by a fast call of another thread
                return False
            self._spec.start(self._node)
            self._spec = None
        if self.status == WAITING:
            self.status = self._node.wait(int(seconds * 1e9))
        return self.status != WAITING


class NativeQueuedCall:
    """See `QueuedCall` of base.py; it is its own request."""

    def __init__(self, node: Any, array: Array, op: str, result: Array) -> None:
        self._node, self._op, self._result = node, op, result
        self.array = array
        self._number: int | None = None
        self._status = WAITING

    def start(self, digest: int) -> None:
        """Queue it."""
        self._number = self._node.submit(self.array, self._op, self._result, digest)

    def Test(self) -> bool:  # noqa: N802 - see Request
        """Advance without waiting; return whether the call is over."""
        return self.sleep(0.0)

    def sleep(self, seconds: float) -> bool:
        """Let the time pass; return whether the call is over."""
        if self._status == WAITING and self._number is not None:
            self._status = self._node.collect(self._number, int(seconds * 1e9))
        return self._status != WAITING

    def transfer(self) -> Steps:
        """Wait until the call is over; return its result."""
        yield self
        if self._status == MISMATCH:
            raise LinesDiffer
        return self._result


class NativeFastCalls:
    """See `FastCalls` of base.py.

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

    def queue(self, array: ArrayLike, op: str, out: Array | None) -> NativeQueuedCall | None:
        """Return an all-reduce that the kernels begin by themselves, or None."""
        if not self.may_queue or not isinstance(array, np.ndarray):
            return None
        if not self._node.is_common(array, op, out):
            return None
        return NativeQueuedCall(
            self._node, array, op, np.empty_like(array) if out is None else out
        )

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
            self._node.end()  # its lines are still to be read, by this call before any other
        yield call
        del arrays
        if call.status == MISMATCH:
            raise LinesDiffer
