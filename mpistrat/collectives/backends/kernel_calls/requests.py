"""Calls into the kernels as requests that the engine can poll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mpistrat.collectives.backends.base import (
    HeadersDiffer,
    QueuedHeader,
    QueuedRequest,
    SleepingRequest,
    Steps,
)
from mpistrat.system.kernels import kernels
from mpistrat.types import Array

__all__ = ["Call", "NativeFastCalls", "QueuedCall", "Spec"]

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

    def described(self, num_ranks: int) -> Any:
        """Return it as the kernels take it."""
        first = next(iter((*self.send, *self.recv)), None)
        itemsize = 1 if first is None else first.itemsize
        is_mean = self.op == "mean"
        return kernels().Described(
            *(self.kind, _OPS["sum" if is_mean else self.op]),
            *(0 if first is None else kernels().dtype_of(first), self.root),
            *(num_ranks if is_mean else 1, self.send, self.recv),
            [int(n) * itemsize for n in self.send_counts],
            [int(n) * itemsize for n in self.recv_counts],
            *(self.most * itemsize, self.payload_bytes),
        )


class Call(SleepingRequest):
    """The request of one call of the node; starts it as soon as the node is free."""

    def __init__(self, node: Any, spec: Spec | None, status: int = WAITING) -> None:
        self._node, self._spec = node, spec
        self.status = status

    def detach(self) -> None:
        """Let a native thread carry on with the call."""
        if self._spec is None and self.status == WAITING:
            self._node.detach()

    def sleep(self, seconds: float) -> bool:
        """Advance for about `seconds`; return whether the call is over."""
        if self._spec is not None:
            if self._node.is_busy:  # by a fast call of another thread
                return False
            self._node.start(self._spec.described(self._node.size), self._spec.crosses)
            self._spec = None
        if self.status == WAITING:
            self.status = self._node.wait(int(seconds * 1e9))
        return self.status != WAITING


class QueuedCall(QueuedRequest):
    """The request of a call that the kernels begin by themselves, after those before it."""

    def __init__(self, node: Any, spec: Spec, header: QueuedHeader) -> None:
        self._node, self._holds = node, header.holds
        described = spec.described(node.size)
        self._number = node.submit(
            *(described, header.digest, header.extra, header.holds, header.nbytes, header.texts)
        )
        self.status = WAITING

    @property
    def holds_others(self) -> bool:
        """Whether those behind it wait until ``resume``, now that it is over."""
        return self._holds or self.status == MISMATCH

    def sleep(self, seconds: float) -> bool:
        """Let the time pass; return whether the call is over."""
        if self.status == WAITING:
            self.status = self._node.collect(self._number, int(seconds * 1e9))
        return self.status != WAITING


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
            self._node.end()  # its lines are still to be read, by this call before any other
        yield call
        del arrays
        if call.status == MISMATCH:
            raise HeadersDiffer
