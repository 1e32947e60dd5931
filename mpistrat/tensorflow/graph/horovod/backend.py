"""The backend ``horovod``: arrays of NumPy, carried by Horovod's operations for TensorFlow.

Arrays become tensors on the host, and results come back as copies. Strategies of TensorFlow hand
their tensors to Horovod without that (bridge.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from mpistrat import built_in_sizes
from mpistrat.cluster import mpi as cluster_mpi
from mpistrat.collectives import Communicator
from mpistrat.collectives.backends.base import Capabilities, Steps
from mpistrat.collectives.backends.fast_path import FastCalls
from mpistrat.collectives.backends.shared_memory.registered import private_memory
from mpistrat.errors import BackendUnavailableError
from mpistrat.tables.reduction_ops import DTYPES, OPS, combine
from mpistrat.tensorflow.graph.horovod import installed, session
from mpistrat.tensorflow.graph.horovod.array_reductions import Plan, plan
from mpistrat.tensorflow.graph.horovod.bridge import HorovodBridge, why_not_on
from mpistrat.tensorflow.graph.horovod.named_function import concrete, in_own_scope
from mpistrat.tensorflow.graph.horovod.transfer_thread import TransferThread
from mpistrat.tensorflow.graph.horovod.tuning import Tuning
from mpistrat.types import Array

__all__ = ["HorovodBackend"]

_MOVED = {1: np.uint8, 2: np.uint16, 4: np.int32, 8: np.int64, 16: np.int64}


class HorovodBackend:
    """Horovod's collectives over the ranks of an MPI communicator."""

    name = "horovod"
    fast: FastCalls | None = None

    def __init__(self, helper: Communicator) -> None:
        self.rank, self.size = helper.rank, helper.size
        self._helper = helper  # what the ranks agree through, before this backend carries anything
        self._member = session.join(helper, Tuning())
        self._thread = TransferThread()
        self._functions: dict[Any, Callable[..., list[tf.Tensor]]] = {}

    @classmethod
    def unavailable(cls, comm: Any) -> str | None:
        """Return why Horovod cannot carry the data of `comm`."""
        if comm is not None and not cluster_mpi.is_mpi_comm(comm):
            return f"comm is a {type(comm).__name__}; expected an mpi4py communicator"
        if comm is None:
            return "no launcher started this process and no comm was given; start it with mpirun"
        return installed.why_not()

    @classmethod
    def open(cls, comm: Any, timeout: float) -> HorovodBackend:
        """Let Horovod run over the ranks of `comm`, or share what does already. **Collective.**"""
        del timeout  # the helper has MPISTRAT_TIMEOUT, too
        helper = Communicator(comm, "mpi")
        try:
            return cls(helper)
        except BackendUnavailableError:  # of all ranks
            helper.close()
            raise

    def capabilities(self) -> Capabilities:
        """List what every Horovod offers, or is made of that."""
        ops = frozenset(OPS) - {"mean"}
        return Capabilities(("CPU",), DTYPES, ops, in_place=True, asynchronous=True)

    def make_bridge(
        self, communicator: Communicator, options: Any = None, gpu: str | None = None
    ) -> HorovodBridge:
        """Make the collectives of a strategy, which get TensorFlow's tensors as they are."""
        return HorovodBridge(communicator, options, gpu)

    def why_not_on(self, gpus: Sequence[str]) -> str | None:
        """Return why Horovod does not combine tensors on GPUs there; None if it does."""
        return why_not_on(gpus)

    def allocate(self, nbytes: int, is_shared: bool) -> Steps:
        """Return private memory: there is no other."""
        return private_memory(self, nbytes, is_shared)

    # -------------------------------------------------------------------------- reductions

    def allreduce(self, send: Array, recv: Array, op: str) -> Steps:
        """Reduce by chunks; what Horovod cannot reduce is gathered, and combined here."""
        how = plan(op, send)
        for part in _chunks(send.size):
            if how is None:
                everyone = np.empty((self.size, send[part].size), send.dtype)
                yield from self._allgather(send[part], everyone.reshape(-1))
                recv[part] = combine(op, everyone)
            else:
                yield self._thread.begin(partial(self._reduce, how, send[part], recv[part]))

    def _reduce(self, how: Plan, send: Array, recv: Array) -> None:
        op = getattr(self._member.horovod, how.op)
        (found,) = self._made("allreduce", [_tensor(how.there(send))], kind=how.op, op=op)
        recv[:] = how.back(found.numpy())

    def allreduce_pieces(self, send: Sequence[Array], recv: Sequence[Array], op: str) -> Steps:
        """Reduce one by one."""
        for one, total in zip(send, recv, strict=True):
            yield from self.allreduce(one, total, op)

    def reduce(self, send: Array, recv: Array | None, op: str, root: int) -> Steps:
        """Reduce for all ranks: Horovod has nothing for one."""
        del root
        yield from self.allreduce(send, np.empty_like(send) if recv is None else recv, op)

    def reduce_scatter(self, send: Array, recv: Array, counts: Sequence[int], op: str) -> Steps:
        """Exchange the pieces, and combine this rank's."""
        pieces = np.empty((self.size, recv.size), send.dtype)
        own = [recv.size] * self.size
        yield from self.alltoall(send, pieces.reshape(-1), counts, own, max(counts))
        recv[:] = combine(op, pieces)

    # ---------------------------------------------------------------------------- movement

    def bcast(self, buffer: Array, root: int) -> Steps:
        """Broadcast by chunks."""
        for part in _chunks(buffer.size):
            yield self._thread.begin(partial(self._bcast, buffer[part], root))

    def _bcast(self, buffer: Array, root: int) -> None:
        there = self._member.ranks[root]
        (found,) = self._made("broadcast", [_tensor(_moved(buffer))], kind=root, root_rank=there)
        if root != self.rank:
            _moved(buffer)[:] = found.numpy()

    def allgather(self, send: Array, recv: Array, counts: Sequence[int]) -> Steps:
        """Gather in one call, or broadcast from each rank where that is too long."""
        if recv.size <= built_in_sizes.MAX_COUNT:
            yield from self._allgather(send, recv)
            return
        starts = np.cumsum([0, *counts])
        for root, count in enumerate(counts):
            piece = recv[starts[root] : starts[root] + count]
            if root == self.rank:
                piece[:] = send
            yield from self.bcast(piece, root)

    def _allgather(self, send: Array, recv: Array) -> Steps:
        if recv.size > 0:  # as all ranks know
            yield self._thread.begin(partial(self._gather, send, recv))

    def _gather(self, send: Array, recv: Array) -> None:
        (found,) = self._made("allgather", [_tensor(_moved(send))])
        _moved(recv)[:] = found.numpy()

    def gather(self, send: Array, recv: Array | None, counts: Sequence[int], root: int) -> Steps:
        """Gather for all ranks: Horovod has nothing for one."""
        del root
        everything = np.empty(sum(counts), send.dtype) if recv is None else recv
        yield from self.allgather(send, everything, counts)

    def scatter(self, send: Array | None, recv: Array, counts: Sequence[int], root: int) -> Steps:
        """Exchange pieces, of which only the root has any."""
        nothing = [0] * self.size
        mine = np.empty(0, recv.dtype) if send is None else send
        came = [recv.size if rank == root else 0 for rank in range(self.size)]
        sent = nothing if send is None else counts
        yield from self.alltoall(mine, recv, sent, came, max(counts))

    def alltoall(
        self,
        send: Array,
        recv: Array,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        most: int | None = None,
    ) -> Steps:
        """Exchange pieces; by rounds of chunks where some are too long for one call."""
        longest = most
        if longest is None:  # a rank sees its own counts only, and all make as many rounds
            found = np.empty(1, np.int64)
            yield from self.allreduce(np.array([max(send_counts)]), found, "max")
            longest = int(found[0])
        limit = max(1, built_in_sizes.MAX_COUNT // self.size)
        for start in range(0, longest, limit):
            outgoing = _pieces(send, send_counts, start, limit)
            incoming = _pieces(recv, recv_counts, start, limit)
            yield self._thread.begin(partial(self._exchange, outgoing, incoming))

    def _exchange(self, outgoing: list[Array], incoming: list[Array]) -> None:
        width = 2 if outgoing[0].dtype.itemsize == 16 else 1
        splits = tf.constant([piece.size * width for piece in outgoing], tf.int32)
        sent = _tensor(_moved(np.concatenate(outgoing)))
        found, _ = self._made("alltoall", [sent, splits])
        start, came = 0, found.numpy()
        for piece in incoming:
            _moved(piece)[:] = came[start : start + piece.size * width]
            start += piece.size * width

    def close(self) -> None:
        """End the thread, and the use of Horovod; all ranks have agreed to it."""
        self._thread.close()
        self._member.close()
        self._helper.close()

    def release(self) -> None:
        """Give up what can be after an error, which this rank may have alone."""
        self._thread.close()
        self._member.close(is_well=False)

    def _made(
        self, what: str, tensors: list[tf.Tensor], kind: object = "", **how: Any
    ) -> list[tf.Tensor]:
        """Make a transfer by one of Horovod's operations; `kind` tells its arguments apart."""
        dtypes = tuple(tensor.dtype for tensor in tensors)
        key = what, kind, dtypes
        if key not in self._functions:
            operation = getattr(self._member.horovod, what)
            # One transfer of this communicator is under way at a time.
            name = f"mpistrat_{self._member.number}_arrays_{what}"
            named = {"name": name, "ignore_name_scope": True}
            call = partial(operation, process_set=self._member.process_set, **named, **how)
            self._functions[key] = concrete(partial(in_own_scope, partial(_listed, call)), dtypes)
        return self._functions[key](*tensors)


def _listed(call: Callable[..., Any], tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    found = call(*tensors)
    return list(found) if isinstance(found, (list, tuple)) else [found]


def _tensor(array: Array) -> tf.Tensor:
    with tf.device("CPU:0"):
        return tf.constant(array)


def _moved(array: Array) -> Array:
    """Return an array as one of a dtype of its size that Horovod moves."""
    return array.view(_MOVED[array.dtype.itemsize])


def _chunks(count: int) -> Iterator[slice]:
    for start in range(0, count, built_in_sizes.MAX_COUNT):
        yield slice(start, min(start + built_in_sizes.MAX_COUNT, count))


def _pieces(array: Array, counts: Sequence[int], start: int, limit: int) -> list[Array]:
    """Return the part of each rank's piece that begins at `start`, of at most `limit` elements."""
    firsts = np.cumsum([0, *counts[:-1]]).tolist()
    return [
        array[first + min(start, n) : first + min(start + limit, n)]
        for first, n in zip(firsts, counts, strict=True)
    ]
