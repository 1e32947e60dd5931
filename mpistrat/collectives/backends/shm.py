"""Collectives between the ranks of one machine, by the C++ kernels (kernels/shm).

Data passes through memory that all ranks have mapped; MPI only brings the ranks together at the
start and carries their notices. The gate's lines travel in the same memory, with the first step of
the data, so that a check costs no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from mpistrat.collectives.backends.base import (
    HEAD_BYTES,
    Ahead,
    Capabilities,
    FastCalls,
    LinesDiffer,
    Request,
    Steps,
)
from mpistrat.collectives.backends.mpi import MpiBackend
from mpistrat.collectives.backends.requests import (
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
    NativeFastCalls,
    QueuedCall,
    Spec,
)
from mpistrat.collectives.backends.shared import bootstrap
from mpistrat.collectives.backends.shared.liveness import Liveness
from mpistrat.collectives.backends.shared.peer_read import reach
from mpistrat.collectives.backends.shared.registered import Registered
from mpistrat.collectives.backends.shared.tuning import CALLS, HALVES, Tuning, Tunings
from mpistrat.errors import BackendUnavailableError
from mpistrat.system.kernels import kernels, why_no_kernels
from mpistrat.tables.reductions import DTYPES, OPS
from mpistrat.types import Array

__all__ = ["CAPABILITIES", "ShmBackend"]


CAPABILITIES = Capabilities(
    ("CPU",),
    DTYPES | {"float16", "bfloat16"},
    frozenset(OPS),
    in_place=True,
    asynchronous=True,
    exact=True,
    checks=True,
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

    def __init__(self, mpi: MpiBackend, node: Any, liveness: Liveness) -> None:
        self._mpi, self._node, self._liveness = mpi, node, liveness
        self.rank, self.size = mpi.rank, mpi.size
        self.letters = mpi.letters
        self.guards_next: bool | Ahead = False
        self.fast: FastCalls | None = NativeFastCalls(node, self.capabilities().asynchronous)
        self._registered = Registered(node)

    @classmethod
    def open(cls, comm: Any, timeout: float) -> ShmBackend:
        """Bring the ranks of `comm` together; all of them get the backend, or the same error."""
        mpi = MpiBackend.open(comm, timeout)
        try:
            return cls.over(mpi, timeout)
        except BackendUnavailableError:
            mpi.close()
            raise

    @classmethod
    def over(cls, mpi: MpiBackend, timeout: float) -> ShmBackend:
        """Make the backend of ranks that MPI has brought together. **Collective.**"""
        found = bootstrap.meet(mpi, _node_bytes, why_no_kernels(), timeout)
        memory = found.segment
        node = kernels().Node(memory, memory.address, mpi.rank, mpi.size, found.cpus)
        backend = cls(mpi, node, Liveness(found.processes, mpi.rank))
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

    # ---------------------------------------------------------------------------- the gate

    def open_gate(self, nbytes: int) -> tuple[Array, Array]:
        """Return the line and the table in the kernels' own memory."""
        self._payload_bytes = nbytes - HEAD_BYTES
        return self._node.line()[:nbytes], self._node.table()[:, :nbytes]

    def post(self) -> Request:
        """Show this rank's line."""
        return self._request(Spec(CROSS, crosses=True, payload_bytes=self._payload_bytes))

    def announce(self, notice: bytes) -> None:
        """Send the notice by MPI."""
        self._mpi.announce(notice)

    def heard(self) -> tuple[int, bytes] | None:
        """Receive a notice by MPI."""
        return self._mpi.heard()

    def lost(self, wait: int = 0) -> Sequence[int]:
        """Return the ranks whose processes have ended."""
        return self._liveness.ended()

    def mark_lost(self, rank: int) -> None:
        """Send that rank nothing more by MPI."""
        self._mpi.mark_lost(rank)

    def allocate(self, nbytes: int, is_shared: bool) -> Steps:
        """Make registered memory (registered.py)."""
        return self._registered.allocate(self, nbytes, is_shared)

    # -------------------------------------------------------------------------- the calls

    def _transfer(
        self, kind: int, send: Sequence[Array], recv: Sequence[Array], **options: Any
    ) -> Steps:
        call = self._request(Spec(kind, send, recv, bool(self.guards_next), **options))
        yield call
        if call.status == MISMATCH:
            raise LinesDiffer

    def _request(self, spec: Spec) -> Call | QueuedCall:
        guard, self.guards_next = self.guards_next, False
        if isinstance(guard, Ahead):
            return QueuedCall(self._node, spec, guard)
        return Call(self._node, spec)

    def allreduce(self, send: Array, recv: Array, op: str) -> Steps:
        """Reduce by slices (kernels/shm/reduction.h)."""
        return self._transfer(ALLREDUCE, [send], [recv], op=op)

    def allreduce_pieces(self, send: Sequence[Array], recv: Sequence[Array], op: str) -> Steps:
        """Reduce a list of arrays of one dtype as if it were one array."""
        return self._transfer(ALLREDUCE, send, recv, op=op)

    def reduce(self, send: Array, recv: Array | None, op: str, root: int) -> Steps:
        """Reduce by slices, which the root collects."""
        recvs = [] if recv is None else [recv]
        return self._transfer(REDUCE, [send], recvs, op=op, root=root)

    def bcast(self, buffer: Array, root: int) -> Steps:
        """Copy through the root's slot."""
        return self._transfer(BCAST, [buffer], [buffer], root=root)

    def allgather(self, send: Array, recv: Array, counts: Sequence[int]) -> Steps:
        """Copy through every rank's slot."""
        return self._transfer(ALLGATHER, [send], [recv], recv_counts=counts)

    def gather(self, send: Array, recv: Array | None, counts: Sequence[int], root: int) -> Steps:
        """Copy through every rank's slot to the root."""
        recvs = [] if recv is None else [recv]
        return self._transfer(GATHER, [send], recvs, recv_counts=counts, root=root)

    def scatter(self, send: Array | None, recv: Array, counts: Sequence[int], root: int) -> Steps:
        """Copy through the root's slot, each rank its part."""
        sends = [] if send is None else [send]
        return self._transfer(
            SCATTER, sends, [recv], send_counts=counts, root=root, most=max(counts)
        )

    def reduce_scatter(self, send: Array, recv: Array, counts: Sequence[int], op: str) -> Steps:
        """Reduce by blocks."""
        return self._transfer(REDUCE_SCATTER, [send], [recv], op=op, send_counts=counts)

    def allgather_pieces(self, send: Array, recv: Sequence[Array], counts: Sequence[int]) -> Steps:
        """Gather into a list of arrays as if it were one array."""
        return self._transfer(ALLGATHER, [send], recv, recv_counts=counts)

    def alltoall(
        self,
        send: Array,
        recv: Array,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        most: int | None = None,
    ) -> Steps:
        """Copy through every rank's slot, each rank its part."""
        if most is None and self.needs_longest:
            longest = np.array([max(*send_counts, *recv_counts)], np.int64)
            yield from self._transfer(ALLREDUCE, [longest], [longest], op="max")
            most = int(longest[0])
        yield from self._transfer(
            ALLTOALL,
            *([send], [recv]),
            send_counts=send_counts,
            recv_counts=recv_counts,
            most=most or 0,
        )

    def close(self) -> None:
        """Free the memory and the MPI communicator."""
        self._liveness.close()
        self._mpi.close()


def _node_bytes(size: int) -> int:
    return int(kernels().node_bytes(size))
