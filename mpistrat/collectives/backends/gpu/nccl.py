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

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy as np

from mpistrat.collectives.backends.base import Backend, Steps
from mpistrat.collectives.backends.gpu.carrier import Carrier
from mpistrat.collectives.backends.gpu.streams import EventRequest, TransferStream
from mpistrat.errors import CommunicationError
from mpistrat.types import Array

__all__ = ["Nccl"]

_ID_BYTES = 128
_FIND_LOST_S = 2.0
_OPS = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
_HALVES = ("float16", "bfloat16")
_DTYPES = {
    **{name: name.upper() for name in ("int8", "int32", "int64", "uint8", "uint32", "uint64")},
    **dict.fromkeys((*_HALVES, "float32", "complex64"), "FLOAT32"),
    **dict.fromkeys(("float64", "complex128"), "FLOAT64"),
    "bool": "UINT8",
}
_BOOL_OPS = {"sum": "max", "or": "max", "max": "max", "prod": "min", "and": "min", "min": "min"}


class _Request:
    """Complete once NCCL's work is done; raises what NCCL has found out meanwhile.

    It does so after a moment: NCCL notices at once that some rank is lost, but not which one,
    which whoever waits for this finds out meanwhile (health/peers.py).
    """

    def __init__(self, comm: Any, event: Any, error: Exception | None = None) -> None:
        self._comm, self._event = comm, EventRequest(event)
        self._error, self._since = error, time.monotonic()

    def Test(self) -> bool:  # noqa: N802 - see Request
        from cupy.cuda import nccl

        if self._error is None:
            try:
                self._comm.check_async_error()
                return self._event.Test()
            except nccl.NcclError as error:
                self._error, self._since = error, time.monotonic()
        self._event.Test()  # raises if it is this rank's GPU that has failed: it says how, at once
        if time.monotonic() - self._since < _FIND_LOST_S:
            return False
        raise CommunicationError(
            f"NCCL: {self._error}; NCCL_DEBUG=INFO shows more, MPISTRAT_GPU_CARRIER=staged does"
            " without"
        ) from self._error


class _Making:
    """The thread that makes a communicator; a request that is complete once it has ended.

    Attributes
    ----------
    comm
        CuPy's communicator, or None.
    reason
        Why it could not be made, or None.
    """

    def __init__(self, make: Callable[[], Any], device: int) -> None:
        self.comm: Any = None
        self.reason: str | None = None
        self._make, self._device = make, device
        self._thread = threading.Thread(target=self._run, name="mpistrat NCCL", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        import cupy

        try:
            with cupy.cuda.Device(self._device):
                self.comm = self._make()
        except Exception as error:  # noqa: BLE001 - whatever it is, all ranks hear of it
            self.reason = f"{type(error).__name__}: {error}"

    def Test(self) -> bool:  # noqa: N802 - see Request
        return not self._thread.is_alive()


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
    """

    name = "nccl"
    widens_halves = True

    def __init__(
        self, host: Backend, stream: TransferStream, device: int, fallback: Carrier
    ) -> None:
        self._host, self._stream, self._device = host, stream, device
        self._rest = fallback
        self._comm: Any = None

    def open(self) -> str | None:
        """See `Carrier.open`."""
        return self._rest.open()

    def meet(self) -> Steps:
        """See `Carrier.meet`."""
        from cupy.cuda import nccl

        reason = yield from self._rest.meet()
        size, rank = self._host.size, self._host.rank
        word = np.zeros(_ID_BYTES + 1, np.uint8)  # the last one: how CuPy has it
        if rank == 0:
            # Only here: NCCL begins to listen for ranks at each of its ids.
            reason = _get_id(word) or reason
        yield from self._host.bcast(word, 0)
        if not word.any():
            return reason or "rank 0 got no id from NCCL"
        name = _as_id(word)
        making = _Making(lambda: nccl.NcclCommunicator(size, name, rank), self._device)
        yield making
        self._comm = making.comm
        return reason or making.reason

    def leave(self) -> Steps:
        """See `Carrier.leave`."""
        yield self._stream.done()
        yield from self._rest.leave()

    def close(self) -> None:
        """See `Carrier.close`."""
        if self._comm is not None:
            self._comm.destroy()
            self._comm = None
        self._rest.close()

    def abort(self) -> None:
        """End the transfers under way, which wait for ranks that will not come. **Local.**"""
        if self._comm is not None:
            self._comm.abort()
            self._comm = None

    def allocate(self, nbytes: int) -> Steps:
        """See `Carrier.allocate`: it is memory like any other."""
        return self._rest.allocate(nbytes)

    # ---------------------------------------------------------------------------- reductions

    def allreduce(self, send: Any, recv: Any, op: str) -> Steps:
        """See `Carrier.allreduce`."""
        how = _reduction(send, op)
        if how is None:
            return self._rest.allreduce(send, recv, op)

        def call(send: Any, recv: Any, stream: int) -> None:
            pair = send.data.ptr, recv.data.ptr
            self._comm.allReduce(*pair, how.count(send), how.dtype, how.op, stream)

        return self._reduce(how, send, recv, call)

    def reduce(self, send: Any, recv: Any | None, op: str, root: int) -> Steps:
        """See `Carrier.reduce`."""
        how = _reduction(send, op)
        if how is None:
            return self._rest.reduce(send, recv, op, root)

        def call(send: Any, recv: Any, stream: int) -> None:
            into = send if recv is None else recv  # not written to but on the root
            pair = send.data.ptr, into.data.ptr
            self._comm.reduce(*pair, how.count(send), how.dtype, how.op, root, stream)

        return self._reduce(how, send, recv, call)

    def reduce_scatter(self, send: Any, recv: Any, counts: Sequence[int], op: str) -> Steps:
        """See `Carrier.reduce_scatter`."""
        how = _reduction(send, op)
        if how is None:
            return self._rest.reduce_scatter(send, recv, counts, op)

        def call(send: Any, recv: Any, stream: int) -> None:
            if min(counts) == max(counts):
                pair = send.data.ptr, recv.data.ptr
                self._comm.reduceScatter(*pair, how.count(recv), how.dtype, how.op, stream)
                return
            with _group():
                for root, piece in enumerate(_pieces(send, counts)):
                    into = recv if root == self._host.rank else piece
                    pair = piece.data.ptr, into.data.ptr
                    self._comm.reduce(*pair, how.count(piece), how.dtype, how.op, root, stream)

        return self._reduce(how, send, recv, call)

    def _reduce(
        self, how: _Reduction, send: Any, recv: Any | None, call: Callable[[Any, Any, int], None]
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
            with _group():
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
            with _group():
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
        from cupy.cuda import nccl

        failed = None
        try:
            call(self._stream.stream.ptr)
        except nccl.NcclError as error:
            failed = error
        yield _Request(self._comm, self._stream.record(), failed)


class _Reduction:
    """How NCCL is to reduce an array.

    Attributes
    ----------
    op, dtype
        NCCL's numbers for them.
    is_mean
        Whether its sum is to be divided.
    is_widened
        Whether it is to be reduced as float32.
    """

    def __init__(self, op: str, dtype: str) -> None:
        from cupy.cuda import nccl

        self.is_mean, self.is_widened = op == "mean", dtype in _HALVES
        self._numbers = 2 if dtype.startswith("complex") else 1
        base = "sum" if self.is_mean else op
        self.op = getattr(nccl, f"NCCL_{_OPS[base]}")
        self.dtype = getattr(nccl, f"NCCL_{_DTYPES[dtype]}")

    def count(self, array: Any) -> int:
        """Return how many numbers an array has; a complex one has two an element."""
        return int(array.size * self._numbers)


def _reduction(array: Any, op: str) -> _Reduction | None:
    """Return how NCCL reduces arrays like this one with `op`; None if it cannot, exactly."""
    name, is_sum = array.dtype.name, op in ("sum", "mean")
    if name == "bool":
        op = _BOOL_OPS.get(op, "")
    elif name.startswith("complex"):
        op = op if is_sum else ""  # a product of complex numbers is not one of their parts
    elif op in ("min", "max") and array.dtype.kind not in "iu":
        op = ""  # NCCL leaves open what the minimum of NaN and a number is
    if name not in _DTYPES or not (is_sum or op in _OPS):
        return None
    return _Reduction(op, name)


def _bytes() -> int:
    from cupy.cuda import nccl

    return int(nccl.NCCL_UINT8)


def _pieces(array: Any, counts: Sequence[int]) -> list[Any]:
    ends = accumulate(counts)
    return [array[end - count : end] for end, count in zip(ends, counts, strict=True)]


_BYTES, _TUPLE = 1, 2  # CuPy 14 has ids as bytes, versions before it as tuples of numbers


def _get_id(word: Array) -> str | None:
    """Write an id of NCCL, and how CuPy has it; return why there is none, or None. **Local.**"""
    from cupy.cuda import nccl

    try:
        name = nccl.get_unique_id()
    except nccl.NcclError as error:
        return f"NCCL gives no id: {error}"
    is_bytes = isinstance(name, bytes)
    data = name if is_bytes else bytes(one & 255 for one in name)
    word[:_ID_BYTES] = np.frombuffer(data, np.uint8)
    word[_ID_BYTES] = _BYTES if is_bytes else _TUPLE
    return None


def _as_id(word: Array) -> Any:
    """Return the id as CuPy has it."""
    data = word[:_ID_BYTES]
    return data.tobytes() if word[_ID_BYTES] == _BYTES else tuple(data.view(np.int8).tolist())


@contextmanager
def _group() -> Any:
    from cupy.cuda import nccl

    nccl.groupStart()
    try:
        yield
    finally:
        nccl.groupEnd()
