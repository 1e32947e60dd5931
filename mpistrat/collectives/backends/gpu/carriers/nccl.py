"""Carry arrays between GPUs by NCCL, or RCCL on AMD's: for ranks that have a GPU each.

CuPy's binding is used, so that NCCL works on CuPy's streams. A communicator is made in a thread of
its own, since NCCL waits for all ranks without a deadline. What NCCL has no operation for is
handed to another carrier.

Notes
-----
NCCL sums in an order of its own, which depends on its version, the GPUs and the size. Every rank
gets the same bits. Half types are widened to float32 and rounded once: that moves more bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.backends.gpu.carriers.carrier import Carrier
from mpistrat.collectives.backends.gpu.carriers.nccl_support.making import Making
from mpistrat.collectives.backends.gpu.carriers.nccl_support.reductions import (
    Reduction,
    reduction_of,
)
from mpistrat.collectives.backends.gpu.carriers.nccl_support.requests import (
    NcclRequest,
    group,
    nccl_error,
)
from mpistrat.collectives.backends.gpu.carriers.nccl_support.unique_id import shared_id
from mpistrat.collectives.backends.gpu.carriers.one_shot import OneShotAllreduce
from mpistrat.collectives.backends.gpu.streams import TransferStream
from mpistrat.collectives.backends.gpu.tuning import GpuTuning
from mpistrat.errors import CommunicationError

__all__ = ["Nccl"]


class Nccl:
    """The carrier by NCCL; see `Carrier`.

    Parameters
    ----------
    host
        The backend over which NCCL's id is told.
    stream
        The transfer stream of this rank's GPU.
    device
        Index of this rank's GPU.
    fallback
        What carries the rest: reductions of complex minima and the like.

    Attributes
    ----------
    short
        What all-reduces short arrays in NCCL's place, or None.
    """

    name = "nccl"
    widens_halves = True

    def __init__(
        self, host: Backend, stream: TransferStream, device: int, fallback: Carrier
    ) -> None:
        self._host, self._stream, self._device = host, stream, device
        self._rest = fallback
        self.short: OneShotAllreduce | None = None
        self._comm: Any = None
        self._new: Any = None  # CuPy's class of communicators
        self._making: Making | None = None

    def open(self) -> str | None:
        """See `Carrier.open`."""
        from cupy.cuda import nccl

        self._new = nccl.NcclCommunicator
        return self._rest.open()

    def meet(self) -> Steps:
        """See `Carrier.meet`."""
        reason = yield from self._rest.meet()
        name, no_name = yield from shared_id(self._host)
        if name is None:
            return no_name
        size, rank = self._host.size, self._host.rank
        self._making = Making(self._host, lambda: self._new(size, name, rank), self._device)
        yield self._making
        self._comm = self._making.take()
        return reason or self._making.reason

    def leave(self) -> Steps:
        """See `Carrier.leave`."""
        yield self._stream.done()
        if self.short is not None:
            yield from self.short.leave()
        yield from self._rest.leave()

    def close(self) -> None:
        """See `Carrier.close`."""
        if self._comm is not None:
            self._comm.destroy()
            self._comm = None
        if self.short is not None:
            self.short.close()
        self._rest.close()

    def tune(self, tuning: GpuTuning) -> None:
        """See `Carrier.tune`."""
        if self.short is not None:
            self.short.tune(tuning)
        self._rest.tune(tuning)

    def abort(self) -> None:
        """End the transfers under way, which wait for ranks that will not come. **Local.**"""
        if self.short is not None:
            self.short.abort()
        if self._making is not None:
            self._making.abandon()
        if self._comm is not None:
            self._comm.abort()
            self._comm = None

    def allocate(self, nbytes: int) -> Steps:
        """See `Carrier.allocate`: it is memory like any other."""
        return self._rest.allocate(nbytes)

    # ---------------------------------------------------------------------------- reductions

    def allreduce(self, send: Any, recv: Any, op: str) -> Steps:
        """See `Carrier.allreduce`."""
        if self.short is not None and self.short.takes(send):
            return self.short.allreduce(send, recv, op)
        how = reduction_of(send, op)
        if how is None:
            return self._rest.allreduce(send, recv, op)

        def call(send: Any, recv: Any, stream: int) -> None:
            pair = send.data.ptr, recv.data.ptr
            self._comm.allReduce(*pair, how.count(send), how.dtype, how.op, stream)

        return self._reduce(how, send, recv, call)

    def reduce(self, send: Any, recv: Any | None, op: str, root: int) -> Steps:
        """See `Carrier.reduce`."""
        how = reduction_of(send, op)
        if how is None:
            return self._rest.reduce(send, recv, op, root)

        def call(send: Any, recv: Any, stream: int) -> None:
            into = send if recv is None else recv  # not written to but on the root
            pair = send.data.ptr, into.data.ptr
            self._comm.reduce(*pair, how.count(send), how.dtype, how.op, root, stream)

        return self._reduce(how, send, recv, call)

    def reduce_scatter(self, send: Any, recv: Any, counts: Sequence[int], op: str) -> Steps:
        """See `Carrier.reduce_scatter`."""
        how = reduction_of(send, op)
        if how is None:
            return self._rest.reduce_scatter(send, recv, counts, op)

        def call(send: Any, recv: Any, stream: int) -> None:
            if min(counts) == max(counts):
                pair = send.data.ptr, recv.data.ptr
                self._comm.reduceScatter(*pair, how.count(recv), how.dtype, how.op, stream)
                return
            with group():
                for root, piece in enumerate(_pieces(send, counts)):
                    into = recv if root == self._host.rank else piece
                    pair = piece.data.ptr, into.data.ptr
                    self._comm.reduce(*pair, how.count(piece), how.dtype, how.op, root, stream)

        return self._reduce(how, send, recv, call)

    def _reduce(
        self, how: Reduction, send: Any, recv: Any | None, call: Callable[[Any, Any, int], None]
    ) -> Steps:
        """Reduce half types as float32, and divide for a mean; both on the GPU."""
        wide = send.astype(np.float32) if how.is_widened else send
        total: Any = recv
        if recv is not None and how.is_widened:
            total = np.empty_like(recv, dtype=np.float32)
        yield from self._run(lambda stream: call(wide, total, stream))
        if recv is None:
            return
        if how.is_mean:  # NCCL's own multiplies by the reciprocal, and so is less exact
            total /= self._host.size
        if total is not recv:
            recv[...] = total.astype(recv.dtype)

    # ------------------------------------------------------------------------------ movement

    def bcast(self, buffer: Any, root: int) -> Steps:
        """See `Carrier.bcast`."""

        def call(stream: int) -> None:
            at = buffer.data.ptr
            self._comm.broadcast(at, at, buffer.nbytes, _bytes(), root, stream)

        return self._run(call)

    def allgather(self, send: Any, recv: Any, counts: Sequence[int]) -> Steps:
        """See `Carrier.allgather`."""

        def call(stream: int) -> None:
            if min(counts) == max(counts):
                pair = send.data.ptr, recv.data.ptr
                self._comm.allGather(*pair, send.nbytes, _bytes(), stream)
                return
            with group():
                for root, piece in enumerate(_pieces(recv, counts)):
                    mine = send if root == self._host.rank else piece
                    pair = mine.data.ptr, piece.data.ptr
                    self._comm.broadcast(*pair, piece.nbytes, _bytes(), root, stream)

        return self._run(call)

    def gather(self, send: Any, recv: Any | None, counts: Sequence[int], root: int) -> Steps:
        """See `Carrier.gather`."""
        pieces = [] if recv is None else _pieces(recv, counts)
        return self._exchange({root: send}, dict(enumerate(pieces)))

    def scatter(self, send: Any | None, recv: Any, counts: Sequence[int], root: int) -> Steps:
        """See `Carrier.scatter`."""
        pieces = [] if send is None else _pieces(send, counts)
        return self._exchange(dict(enumerate(pieces)), {root: recv})

    def alltoall(
        self,
        send: Any,
        recv: Any,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        longest: int,
    ) -> Steps:
        """See `Carrier.alltoall`."""
        there, back = _pieces(send, send_counts), _pieces(recv, recv_counts)
        return self._exchange(dict(enumerate(there)), dict(enumerate(back)))

    def _exchange(self, send: dict[int, Any], recv: dict[int, Any]) -> Steps:
        """Send arrays to ranks and receive arrays from ranks, all at once."""

        def call(stream: int) -> None:
            with group():
                for rank, piece in send.items():
                    if piece.nbytes:
                        self._comm.send(piece.data.ptr, piece.nbytes, _bytes(), rank, stream)
                for rank, piece in recv.items():
                    if piece.nbytes:
                        self._comm.recv(piece.data.ptr, piece.nbytes, _bytes(), rank, stream)

        return self._run(call)

    def _run(self, call: Callable[[int], None]) -> Steps:
        if self._comm is None:
            raise CommunicationError("NCCL's communicator was given up; make a new strategy")
        failed = None
        try:
            call(self._stream.stream.ptr)
        except nccl_error() as error:
            failed = error
        yield NcclRequest(self._comm, self._stream.record(), failed)


def _bytes() -> int:
    from cupy.cuda import nccl

    return int(nccl.NCCL_UINT8)


def _pieces(array: Any, counts: Sequence[int]) -> list[Any]:
    ends = accumulate(counts)
    return [array[end - count : end] for end, count in zip(ends, counts, strict=True)]
