"""Calls into the kernels as requests that the engine can poll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mpistrat.collectives.backends.base import (
    QueuedRequest,
    SleepingRequest,
    Ticket,
)
from mpistrat.system.kernels import kernels
from mpistrat.types import Array

__all__ = ["Call", "QueuedCall", "Spec"]

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
    _described: Any = None

    def described(self, num_ranks: int) -> Any:
        """Return it as the kernels take it; `num_ranks` is always the same."""
        if self._described is None:
            self._described = self._describe(num_ranks)
        return self._described

    def _describe(self, num_ranks: int) -> Any:
        native = kernels()
        first = next(iter((*self.send, *self.recv)), None)
        itemsize = 1 if first is None else first.itemsize
        # The kernels take a mean as a sum with a divisor.
        is_mean = self.op == "mean"
        return native.Described(
            *(self.kind, _OPS["sum" if is_mean else self.op]),
            *(0 if first is None else native.dtype_of(first), self.root),
            *(num_ranks if is_mean else 1, self.send, self.recv),
            [int(n) * itemsize for n in self.send_counts],
            [int(n) * itemsize for n in self.recv_counts],
            *(self.most * itemsize, self.payload_bytes),
        )


class Call(SleepingRequest):
    """The request of one call of the node; starts it as soon as the node is free."""

    def __init__(self, node: Any, spec: Spec | None, ticket: Ticket | None = None) -> None:
        self._node, self._spec, self._ticket = node, spec, ticket
        self.status = WAITING

    @classmethod
    def resume(cls, node: Any, status: int) -> Call:
        """Go on with a call that the node has begun by itself; its arrays have to be kept."""
        if status != WAITING:
            node.end()  # its headers are still to be read, by this call before any other
        call = cls(node, None)
        call.status = status
        return call

    def sleep(self, seconds: float) -> bool:
        """Advance for about `seconds`; return whether the call is over."""
        if self._spec is not None:
            if self._node.is_busy:  # by a fast call of another thread
                return False
            self._start(self._spec)
            self._spec = None
        if self.status == WAITING:
            self.status = self._node.wait(int(seconds * 1e9))
        return self.status != WAITING

    def _start(self, spec: Spec) -> None:
        described, ticket = spec.described(self._node.size), self._ticket
        if ticket is None:
            self._node.start(described, spec.crosses)
        else:
            self._node.start_counted(
                described, ticket.digest, ticket.extra, ticket.nbytes, ticket.texts
            )


class QueuedCall(QueuedRequest):
    """The request of a call that the kernels begin by themselves, after those before it."""

    def __init__(self, node: Any, spec: Spec, ticket: Ticket) -> None:
        self._node, self._holds = node, ticket.holds
        described = spec.described(node.size)
        self._number = node.submit(
            *(described, ticket.digest, ticket.extra, ticket.holds, ticket.nbytes, ticket.texts)
        )
        self.status = WAITING

    @classmethod
    def adopted(cls, node: Any) -> QueuedCall | None:
        """Queue the fast call that is under way; None if the kernels cannot."""
        number, holds = node.adopt()
        if number < 0:
            return None
        call = cls.__new__(cls)
        call._node, call._holds, call._number, call.status = node, holds, number, WAITING
        return call

    @property
    def holds_others(self) -> bool:
        """Whether those behind it wait until ``resume``, now that it is over."""
        return self._holds or self.status == MISMATCH

    def sleep(self, seconds: float) -> bool:
        """Let the time pass; return whether the call is over."""
        if self.status == WAITING:
            self.status = self._node.collect(self._number, int(seconds * 1e9))
        return self.status != WAITING
