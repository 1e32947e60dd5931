"""Collectives through MPI's own calls, by the buffer protocol; nothing is pickled.

All calls are non-blocking, so that every wait has a deadline and Ctrl-C works. Arrays longer than
``built_in_sizes.MAX_COUNT`` elements go in chunks, because some MPI libraries refuse counts of 2³¹
and more: reductions and broadcasts chunk by chunk, the gathering operations as one chunked
transfer for each pair of ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from mpistrat import built_in_sizes
from mpistrat.cluster import mpi as cluster_mpi
from mpistrat.collectives import shutdown
from mpistrat.collectives.backends.base import Capabilities, Steps
from mpistrat.collectives.backends.fast_path import FastCalls
from mpistrat.collectives.backends.mpi_support import comm_split, symbols
from mpistrat.collectives.backends.mpi_support.control import MpiWatch, mpi_control
from mpistrat.collectives.backends.shared_memory.registered import private_memory
from mpistrat.collectives.checking.creation import PAUSE_S, Creation
from mpistrat.collectives.health import rank_names
from mpistrat.errors import (
    BackendUnavailableError,
    CommunicationError,
    CommunicationTimeoutError,
)
from mpistrat.system.waiting import wait_until
from mpistrat.tables.reduction_ops import DTYPES
from mpistrat.types import Array

__all__ = ["MpiBackend"]

_OPS = {
    "sum": "SUM",
    "prod": "PROD",
    "min": "MIN",
    "max": "MAX",
    "and": "BAND",
    "or": "BOR",
    "xor": "BXOR",
}
# Bools travel as bytes of 0 and 1: BOR and BAND keep them so, where a sum would not.
_BOOL_OPS = {**_OPS, "sum": "BOR", "max": "BOR", "prod": "BAND", "min": "BAND"}
_DATA_TAG = 2  # 1 is of the notices (mpi_support/control.py), 16 and more of the kernels


def _here(comm: Any) -> str:
    return rank_names.of_comm(comm, comm.rank, comm.size).here


class MpiBackend:
    """Collectives over a private duplicate of an mpi4py communicator.

    Notes
    -----
    Cost: the gate is one MPI_Allgather of 32 bytes a rank (224 for up to 32 ranks, with short
    arrays in it), so each rank gets 32 P bytes a call. The data is one call of MPI's own
    collective for each 2³⁰ elements, with MPI's algorithms. An all-to-all sends the lengths first
    (8 P bytes), and an MPI_Allreduce of one byte with both; a scatter sends the shape first, by an
    MPI_Bcast of 128 bytes and another gate.
    """

    name = "mpi"
    fast: FastCalls | None = None

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = comm
        self.rank, self.size = comm.rank, comm.size
        self._watch = MpiWatch(comm)
        self.control = mpi_control(comm, MPI, self._watch)
        by_size = {1: MPI.BYTE, 2: MPI.UINT16_T, 4: MPI.UINT32_T, 8: MPI.UINT64_T}
        self._moved = {**by_size, 16: MPI.C_DOUBLE_COMPLEX}

    @classmethod
    def unavailable(cls, comm: Any) -> str | None:
        """Return why MPI cannot carry the data of `comm`."""
        if cluster_mpi.is_null(comm):
            return (
                "comm is MPI.COMM_NULL: this process is not in it, or it was freed; make one only"
                " on its ranks, and before comm.Free()"
            )
        if cluster_mpi.is_mpi_comm(comm):
            return cluster_mpi.why_unusable(sys.modules["mpi4py.MPI"])
        if comm is not None:
            return f"comm is a {type(comm).__name__}; expected an mpi4py intra-communicator"
        return "no launcher started this process and no comm was given; start it with mpirun"

    @classmethod
    def open(cls, comm: Any, timeout: float) -> MpiBackend:
        """Duplicate `comm`, with a deadline: another rank may never come here."""
        from mpi4py import MPI

        # Before the first wait: a rank whose program ends in it must take the job with it.
        if MPI.COMM_WORLD.size > 1:
            shutdown.install()
        try:
            duplicate, request = comm.Idup()
        except MPI.Exception as error:
            raise CommunicationError(
                f"MPI cannot make another communicator on rank {_here(comm)}: {error};"
                " close() strategies that are not used any more"
            ) from error
        # Ranks compare how many creations each has begun (deadlock.py), which works only where all
        # ranks of the job take part in each.
        if comm.size == MPI.COMM_WORLD.size:
            names = rank_names.of_comm(comm, comm.rank, comm.size)
            creation = Creation(comm.size, names.rank_of)
            are_all_here = creation.wait_until(request.Test, timeout)
        else:
            are_all_here = wait_until(request.Test, timeout, PAUSE_S)
        if not are_all_here:
            raise CommunicationTimeoutError(
                f"rank {_here(comm)} waited {timeout:.0f} s for all ranks to make"
                " this strategy or communicator; make it on every rank of comm"
            )
        # Whatever handler `comm` has: MPI's default one ends the job without an exception.
        duplicate.Set_errhandler(MPI.ERRORS_RETURN)
        return cls(duplicate)

    @classmethod
    def over(cls, mpi: MpiBackend, timeout: float) -> MpiBackend:
        """Return `mpi` itself. **Local.**"""
        del timeout
        return mpi

    def split(self, color: int | None, timeout: float) -> MpiBackend | None:
        """Make a backend of the ranks that give the same `color`; None for those without one.

        **Collective**; see comm_split.py for what happens at the deadline.
        """
        number = self._mpi.UNDEFINED if color is None else color
        comm = comm_split.split(self._comm, number, timeout, self.may_thread)
        return None if comm == self._mpi.COMM_NULL else MpiBackend(comm)

    def for_kernels(self, first_tag: int) -> list[int]:
        """Describe MPI and this communicator to the kernels, which use tags from `first_tag` on.

        Raises
        ------
        BackendUnavailableError
            The kernels cannot call this MPI library.
        """
        if reason := symbols.why_not(self._mpi):
            raise BackendUnavailableError(reason)
        return symbols.describe(self._mpi, self._comm, first_tag)

    @property
    def may_thread(self) -> bool:
        """Whether any thread may call MPI at any time."""
        return bool(self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE)

    def failure(self, code: int) -> CommunicationError:
        """Return the error for what MPI returned in place of a message."""
        return CommunicationError(
            f"rank {self.rank}/{self.size}: MPI cannot finish a message"
            f" ({self._mpi.Get_error_string(code)}); the process of a rank may have ended, look at"
            " what the others say"
        )

    def capabilities(self) -> Capabilities:
        """List what every MPI library offers."""
        return Capabilities(("CPU",), DTYPES, frozenset(_OPS), in_place=True, asynchronous=False)

    def allocate(self, nbytes: int, is_shared: bool) -> Steps:
        """Return private memory: there is no other."""
        return private_memory(self, nbytes, is_shared)

    def watch(self, timeout: float, near: Collection[int] = ()) -> None:
        """Watch the processes of the other ranks but `near` (udp_probe.py). **Collective.**"""
        self._watch.start(timeout, near)

    # -------------------------------------------------------------------------- reductions

    def _operation(self, array: Array, op: str) -> tuple[Array, Any]:
        """Return `array` and `op` as MPI knows them: bool travels as bytes of 0 and 1."""
        if array.dtype == np.bool_:
            return array.view(np.uint8), getattr(self._mpi, _BOOL_OPS[op])
        return array, getattr(self._mpi, _OPS[op])

    def allreduce(self, send: Array, recv: Array, op: str) -> Steps:
        """MPI_Iallreduce by chunks."""
        send, mpi_op = self._operation(send, op)
        recv, _ = self._operation(recv, op)
        # MPI forbids one buffer in both places, and has IN_PLACE for that.
        is_in_place = send.ctypes.data == recv.ctypes.data
        for part in _chunks(send.size):
            source = self._mpi.IN_PLACE if is_in_place else send[part]
            yield self._comm.Iallreduce(source, recv[part], mpi_op)

    def allreduce_pieces(self, send: Sequence[Array], recv: Sequence[Array], op: str) -> Steps:
        """Reduce one by one."""
        for one, total in zip(send, recv, strict=True):
            yield from self.allreduce(one, total, op)

    def reduce(self, send: Array, recv: Array | None, op: str, root: int) -> Steps:
        """MPI_Ireduce by chunks."""
        send, mpi_op = self._operation(send, op)
        target = None if recv is None else self._operation(recv, op)[0]
        is_in_place = target is not None and send.ctypes.data == target.ctypes.data
        for part in _chunks(send.size):
            source = self._mpi.IN_PLACE if is_in_place else send[part]
            into = None if target is None else target[part]
            yield self._comm.Ireduce(source, into, mpi_op, root)

    def reduce_scatter(self, send: Array, recv: Array, counts: Sequence[int], op: str) -> Steps:
        """MPI_Ireduce_scatter, or chunked reductions to each rank."""
        # Equal on all ranks, as the shapes are, so that all take the same branch.
        if send.size > built_in_sizes.MAX_COUNT:
            for root, piece in enumerate(_pieces(send, counts)):
                yield from self.reduce(piece, recv if root == self.rank else None, op, root)
            return
        send, mpi_op = self._operation(send, op)
        recv, _ = self._operation(recv, op)
        yield self._comm.Ireduce_scatter(send, recv, list(counts), mpi_op)

    # ---------------------------------------------------------------------------- movement

    def _spec(self, array: Array, counts: Sequence[int] | None = None) -> list[Any]:
        """Describe a buffer to mpi4py; what is only moved has a type by its size alone."""
        data = array.view(np.uint8)
        datatype = self._moved[array.dtype.itemsize]
        if counts is None:
            return [data, array.size, datatype]
        return [data, list(counts), _offsets(counts), datatype]

    def bcast(self, buffer: Array, root: int) -> Steps:
        """MPI_Ibcast by chunks."""
        for part in _chunks(buffer.size):
            yield self._comm.Ibcast(self._spec(buffer[part]), root)

    def allgather(self, send: Array, recv: Array, counts: Sequence[int]) -> Steps:
        """MPI_Iallgatherv, or one chunked broadcast from each rank."""
        if recv.size <= built_in_sizes.MAX_COUNT:
            yield self._comm.Iallgatherv(self._spec(send), self._spec(recv, counts))
            return
        for root, piece in enumerate(_pieces(recv, counts)):
            if root == self.rank:
                piece[:] = send
            yield from self.bcast(piece, root)

    def gather(self, send: Array, recv: Array | None, counts: Sequence[int], root: int) -> Steps:
        """MPI_Igatherv, or chunked messages."""
        if sum(counts) <= built_in_sizes.MAX_COUNT:
            into = None if recv is None else self._spec(recv, counts)
            yield self._comm.Igatherv(self._spec(send), into, root)
            return
        if recv is None:
            yield from self._transfer({root: send}, {})
        else:
            pieces = dict(enumerate(_pieces(recv, counts)))
            pieces.pop(root)[:] = send
            yield from self._transfer({}, pieces)

    def scatter(self, send: Array | None, recv: Array, counts: Sequence[int], root: int) -> Steps:
        """MPI_Iscatterv, or chunked messages."""
        if sum(counts) <= built_in_sizes.MAX_COUNT:
            source = None if send is None else self._spec(send, counts)
            yield self._comm.Iscatterv(source, self._spec(recv), root)
            return
        if send is None:
            yield from self._transfer({}, {root: recv})
        else:
            pieces = dict(enumerate(_pieces(send, counts)))
            recv[:] = pieces.pop(root)
            yield from self._transfer(pieces, {})

    def alltoall(
        self,
        send: Array,
        recv: Array,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        most: int | None = None,
    ) -> Steps:
        """MPI_Ialltoallv; chunked messages between two ranks if any rank's array is long."""
        # A rank sees its own counts only, and all must take the same branch.
        is_long = np.array([max(send.size, recv.size) > built_in_sizes.MAX_COUNT], np.uint8)
        yield self._comm.Iallreduce(self._mpi.IN_PLACE, is_long, self._mpi.MAX)
        if not is_long[0]:
            source, target = self._spec(send, send_counts), self._spec(recv, recv_counts)
            yield self._comm.Ialltoallv(source, target)
            return
        outgoing = dict(enumerate(_pieces(send, send_counts)))
        incoming = dict(enumerate(_pieces(recv, recv_counts)))
        incoming.pop(self.rank)[:] = outgoing.pop(self.rank)
        yield from self._transfer(outgoing, incoming)

    def _transfer(self, outgoing: dict[int, Array], incoming: dict[int, Array]) -> Steps:
        """Send and receive pieces of any length, chunk by chunk, all pairs at once."""
        # All chunks have one tag: messages between two ranks are received in the order of sending.
        requests = [
            self._comm.Irecv(self._spec(piece[part]), rank, _DATA_TAG)
            for rank, piece in incoming.items()
            for part in _chunks(piece.size)
        ]
        requests += [
            self._comm.Isend(self._spec(piece[part]), rank, _DATA_TAG)
            for rank, piece in outgoing.items()
            for part in _chunks(piece.size)
        ]
        yield from requests

    def close(self) -> None:
        """Do nothing: the communicator is freed with the control."""


def _chunks(count: int) -> Iterator[slice]:
    for start in range(0, count, built_in_sizes.MAX_COUNT):
        yield slice(start, min(start + built_in_sizes.MAX_COUNT, count))


def _offsets(counts: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(counts[:-1]).tolist()]


def _pieces(array: Array, counts: Sequence[int]) -> list[Array]:
    starts = _offsets(counts)
    return [array[s : s + n] for s, n in zip(starts, counts, strict=True)]
