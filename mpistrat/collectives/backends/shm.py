"""Collectives between the ranks of one machine, by the C++ kernels (kernels/shm).

Data passes through memory that all ranks have mapped; MPI only brings the ranks together at the
start and carries their notices. Headers of calls travel in the same memory, with the first step of
the data, so that a check costs no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from mpistrat.collectives.backends.base import (
    HEAD_BYTES,
    BegunHeader,
    Capabilities,
    Header,
    HeadersDiffer,
    Request,
    Steps,
    Ticket,
)
from mpistrat.collectives.backends.fast_path import FastCalls
from mpistrat.collectives.backends.kernel_calls.fast_path import NativeFastCalls
from mpistrat.collectives.backends.kernel_calls.requests import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BCAST,
    CROSS,
    GATHER,
    MISMATCH,
    REDUCE,
    REDUCE_SCATTER,
    SCATTER,
    Call,
    QueuedCall,
    Spec,
)
from mpistrat.collectives.backends.mpi import MpiBackend
from mpistrat.collectives.backends.shared_memory import bootstrap
from mpistrat.collectives.backends.shared_memory.peer_read import reach
from mpistrat.collectives.backends.shared_memory.registered import Registered
from mpistrat.collectives.backends.shared_memory.tuning import CALLS, HALVES, Tuning, Tunings
from mpistrat.errors import BackendUnavailableError
from mpistrat.system.kernels import kernels, why_no_kernels
from mpistrat.system.liveness.pidfd import PidfdProbe
from mpistrat.system.liveness.probe import Probe
from mpistrat.tables.reduction_ops import DTYPES, OPS
from mpistrat.types import Array

__all__ = ["CAPABILITIES", "ShmBackend"]


CAPABILITIES = Capabilities(
    ("CPU",),
    DTYPES | {"float16", "bfloat16"},
    frozenset(OPS),
    in_place=True,
    asynchronous=True,
    exact=True,
    carries_headers=True,
)


class ShmBackend:
    """Collectives through shared memory; every rank is on this machine.

    Attributes
    ----------
    reads_peers
        Whether long arrays are read where they are, by the kernel (peer_read.py).
    needs_longest
        Whether an all-to-all has to know the longest block of any rank: slots do, messages do not.
    """

    name = "shm"
    reads_peers = False
    needs_longest = True
    unavailable = staticmethod(MpiBackend.unavailable)

    def __init__(self, mpi: MpiBackend, node: Any, liveness: Probe) -> None:
        self._mpi, self._node = mpi, node
        self._processes: PidfdProbe | None = None
        self.rank, self.size = mpi.rank, mpi.size
        # Notices and questions stay MPI's: they are for ranks that do not come to the kernels.
        self.control = replace(mpi.control, headers=_KernelHeaders(node), liveness=liveness)
        self.fast: FastCalls | None = NativeFastCalls(node, self.capabilities().asynchronous)
        self._registered = Registered(node)

    @classmethod
    def open(cls, comm: Any, timeout: float) -> ShmBackend:
        """Bring the ranks of `comm` together; all of them get the backend, or the same error."""
        mpi = MpiBackend.open(comm, timeout)
        try:
            return cls.over(mpi, timeout)
        except BackendUnavailableError:
            # Collective, as it frees the duplicate: all ranks have this error.
            mpi.control.close()
            raise

    @classmethod
    def over(cls, mpi: MpiBackend, timeout: float) -> ShmBackend:
        """Make the backend of ranks that MPI has brought together. **Collective.**"""
        found = bootstrap.meet(mpi, _node_bytes, why_no_kernels(), timeout)
        memory = found.segment
        node = kernels().Node(memory, memory.address, mpi.rank, mpi.size, found.cpus)
        processes = PidfdProbe(found.processes, mpi.rank)
        backend = cls(mpi, node, processes)
        backend._processes = processes
        backend.tune(found.tunings)
        backend.reads_peers = reach(mpi, kernels(), node, found.processes, timeout)
        return backend

    @property
    def native(self) -> Any:
        """The kernels' own object, which carries the calls out."""
        return self._node

    def tune(self, tunings: Tunings) -> None:
        """Set where one way gives way to another; the same on all ranks. **Local.**

        What `tunings` does not name gets the built-in figures.
        """
        for kind, call in enumerate(CALLS, start=ALLREDUCE):
            for is_half, name in enumerate([call, call + HALVES]):
                self._node.tune(kind, is_half == 1, astuple(tunings.get(name, Tuning())))

    def capabilities(self) -> Capabilities:
        """Everything, as NumPy would do it."""
        return CAPABILITIES

    def allocate(self, nbytes: int, is_shared: bool) -> Steps:
        """Make registered memory (registered.py)."""
        return self._registered.allocate(self, nbytes, is_shared)

    # -------------------------------------------------------------------------- the calls

    def _transfer(
        self,
        kind: int,
        send: Sequence[Array],
        recv: Sequence[Array],
        header: Header,
        **options: Any,
    ) -> Steps:
        spec = Spec(kind, send, recv, bool(header), **options)
        call = _request(self._node, spec, header)
        yield call
        if call.status == MISMATCH:
            raise HeadersDiffer

    def allreduce(self, send: Array, recv: Array, op: str, header: Header = False) -> Steps:
        """Reduce by slices (kernels/shm/reduction/)."""
        return self._transfer(ALLREDUCE, [send], [recv], header, op=op)

    def allreduce_pieces(
        self, send: Sequence[Array], recv: Sequence[Array], op: str, header: Header = False
    ) -> Steps:
        """Reduce a list of arrays of one dtype as if it were one array."""
        return self._transfer(ALLREDUCE, send, recv, header, op=op)

    def reduce(
        self, send: Array, recv: Array | None, op: str, root: int, header: Header = False
    ) -> Steps:
        """Reduce by slices, which the root collects."""
        recvs = [] if recv is None else [recv]
        return self._transfer(REDUCE, [send], recvs, header, op=op, root=root)

    def bcast(self, buffer: Array, root: int, header: Header = False) -> Steps:
        """Copy through the root's slot."""
        return self._transfer(BCAST, [buffer], [buffer], header, root=root)

    def allgather(
        self, send: Array, recv: Array, counts: Sequence[int], header: Header = False
    ) -> Steps:
        """Copy through every rank's slot."""
        return self._transfer(ALLGATHER, [send], [recv], header, recv_counts=counts)

    def gather(
        self,
        send: Array,
        recv: Array | None,
        counts: Sequence[int],
        root: int,
        header: Header = False,
    ) -> Steps:
        """Copy through every rank's slot to the root."""
        recvs = [] if recv is None else [recv]
        return self._transfer(GATHER, [send], recvs, header, recv_counts=counts, root=root)

    def scatter(
        self,
        send: Array | None,
        recv: Array,
        counts: Sequence[int],
        root: int,
        header: Header = False,
    ) -> Steps:
        """Copy through the root's slot, each rank its part."""
        sends, most = [] if send is None else [send], max(counts)
        return self._transfer(
            SCATTER, sends, [recv], header, send_counts=counts, root=root, most=most
        )

    def reduce_scatter(
        self, send: Array, recv: Array, counts: Sequence[int], op: str, header: Header = False
    ) -> Steps:
        """Reduce by blocks."""
        return self._transfer(REDUCE_SCATTER, [send], [recv], header, op=op, send_counts=counts)

    def allgather_pieces(self, send: Array, recv: Sequence[Array], counts: Sequence[int]) -> Steps:
        """Gather into a list of arrays as if it were one array."""
        return self._transfer(ALLGATHER, [send], recv, False, recv_counts=counts)

    def alltoall(
        self,
        send: Array,
        recv: Array,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        most: int | None = None,
        *,
        header: Header = False,
    ) -> Steps:
        """Copy through every rank's slot, each rank its part."""
        if most is None and self.needs_longest:
            longest = np.array([max(*send_counts, *recv_counts)], np.int64)
            yield from self._transfer(ALLREDUCE, [longest], [longest], header, op="max")
            most, header = int(longest[0]), False  # the first transfer has carried it
        yield from self._transfer(
            *(ALLTOALL, [send], [recv], header),
            send_counts=send_counts,
            recv_counts=recv_counts,
            most=most or 0,
        )

    def close(self) -> None:
        """Watch the processes of this machine no more; memory goes with its last array."""
        if self._processes is not None:
            self._processes.close()


class _KernelHeaders:
    """Headers in the kernels' own memory, where their transfers carry them, too."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self._crossing = Spec(CROSS, crosses=True)

    def open(self, nbytes: int) -> tuple[Array, Array]:
        """Return this rank's header and the table of all."""
        self._crossing = Spec(CROSS, crosses=True, payload_bytes=nbytes - HEAD_BYTES)
        return self._node.line()[:nbytes], self._node.table()[:, :nbytes]

    def post(self, header: Header = True) -> Request:
        """Show this rank's header, without data."""
        return _request(self._node, self._crossing, header)


def _request(node: Any, spec: Spec, header: Header) -> Call | QueuedCall:
    if isinstance(header, BegunHeader):
        return header.request or Call.resume(node, header.status)
    ticket = header if isinstance(header, Ticket) else None
    if ticket is not None and ticket.is_queued:
        return QueuedCall(node, spec, ticket)
    return Call(node, spec, ticket)


def _node_bytes(size: int) -> int:
    return int(kernels().node_bytes(size))
