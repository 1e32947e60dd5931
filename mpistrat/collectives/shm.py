"""Collectives between the ranks of one machine, by the C++ kernels (kernels/shm).

Data passes through memory that all ranks have mapped; MPI only brings the ranks together at the
start and carries their notices. The gate's lines travel in the same memory, with the first step of
the data, so that a check costs no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from mpistrat.collectives import rendezvous
from mpistrat.collectives.base import (
    HEAD_BYTES,
    Capabilities,
    FastCalls,
    LinesDiffer,
    Request,
    Steps,
)
from mpistrat.collectives.liveness import Liveness
from mpistrat.collectives.mpi import MpiBackend
from mpistrat.collectives.reaching import reach
from mpistrat.collectives.reductions import DTYPES, OPS
from mpistrat.collectives.registered import Registered
from mpistrat.collectives.tuning import CALLS, HALVES, Tuning, Tunings
from mpistrat.errors import BackendUnavailableError
from mpistrat.types import Array, ArrayLike

__all__ = ["CAPABILITIES", "ShmBackend", "kernels", "why_no_kernels"]

# MpistratKind, MpistratStatus, MpistratOp and MpistratDtype of kernels/include/mpistrat.
_CROSS, _ALLREDUCE, _REDUCE, _REDUCE_SCATTER, _BCAST, _ALLGATHER = 0, 1, 2, 3, 4, 5
_GATHER, _SCATTER, _ALLTOALL = 6, 7, 8
_DONE, _WAITING, _MISMATCH = 0, 1, 2
_OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "and": 4, "or": 5, "xor": 6}
_BFLOAT16 = 10

CAPABILITIES = Capabilities(
    ("CPU",),
    DTYPES | {"float16", "bfloat16"},
    frozenset(OPS),
    in_place=True,
    asynchronous=True,
    exact=True,
    checks=True,
)


@lru_cache(maxsize=1)
def _load() -> tuple[ModuleType | None, str]:
    try:
        from mpistrat import _kernels
    except ImportError as error:
        return None, f"mpistrat was installed without its C++ kernels ({error})"
    import ml_dtypes

    _kernels.register_dtype(np.dtype(ml_dtypes.bfloat16).num, _BFLOAT16)
    return _kernels, ""


def kernels() -> Any:
    """Return the compiled module; raise `BackendUnavailableError` where there is none."""
    module, reason = _load()
    if module is None:
        raise BackendUnavailableError(reason)
    return module


def why_no_kernels() -> str | None:
    """Return why the kernels cannot be used by this process, or None."""
    return _load()[1] or None


class ShmBackend:
    """Collectives through shared memory; every rank is on this machine.

    Attributes
    ----------
    reads_peers
        Whether long arrays are read where they are, by the kernel (reaching.py).
    """

    name = "shm"
    reads_peers = False
    unavailable = staticmethod(MpiBackend.unavailable)

    def __init__(self, mpi: MpiBackend, node: Any, liveness: Liveness) -> None:
        self._mpi, self._node, self._liveness = mpi, node, liveness
        self.rank, self.size = mpi.rank, mpi.size
        self.letters = mpi.letters
        self.guards_next = False
        self.fast: FastCalls | None = _FastCalls(node, self.capabilities().asynchronous)
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
        found = rendezvous.meet(mpi, _node_bytes, why_no_kernels(), timeout)
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
        for kind, call in enumerate(CALLS, start=_ALLREDUCE):
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
        return _Call(self._node, _Spec(_CROSS, crosses=True, payload_bytes=self._payload_bytes))

    def announce(self, notice: bytes) -> None:
        """Send the notice by MPI."""
        self._mpi.announce(notice)

    def heard(self) -> tuple[int, bytes] | None:
        """Receive a notice by MPI."""
        return self._mpi.heard()

    def lost(self) -> Sequence[int]:
        """Return the ranks whose processes have ended."""
        return self._liveness.ended()

    def allocate(self, nbytes: int, is_shared: bool) -> Steps:
        """Make registered memory (registered.py)."""
        return self._registered.allocate(self, nbytes, is_shared)

    # -------------------------------------------------------------------------- the calls

    def _transfer(
        self, kind: int, send: Sequence[Array], recv: Sequence[Array], **options: Any
    ) -> Steps:
        spec = _Spec(kind, send, recv, self.guards_next, **options)
        call = _Call(self._node, spec)
        self.guards_next = False
        yield call
        if call.status == _MISMATCH:
            raise LinesDiffer

    def allreduce(self, send: Array, recv: Array, op: str) -> Steps:
        """Reduce by slices (kernels/shm/reduction.h)."""
        return self._transfer(_ALLREDUCE, [send], [recv], op=op)

    def allreduce_pieces(self, send: Sequence[Array], recv: Sequence[Array], op: str) -> Steps:
        """Reduce a list of arrays of one dtype as if it were one array."""
        return self._transfer(_ALLREDUCE, send, recv, op=op)

    def reduce(self, send: Array, recv: Array | None, op: str, root: int) -> Steps:
        """Reduce by slices, which the root collects."""
        recvs = [] if recv is None else [recv]
        return self._transfer(_REDUCE, [send], recvs, op=op, root=root)

    def bcast(self, buffer: Array, root: int) -> Steps:
        """Copy through the root's slot."""
        return self._transfer(_BCAST, [buffer], [buffer], root=root)

    def allgather(self, send: Array, recv: Array, counts: Sequence[int]) -> Steps:
        """Copy through every rank's slot."""
        return self._transfer(_ALLGATHER, [send], [recv], recv_counts=counts)

    def gather(self, send: Array, recv: Array | None, counts: Sequence[int], root: int) -> Steps:
        """Copy through every rank's slot to the root."""
        recvs = [] if recv is None else [recv]
        return self._transfer(_GATHER, [send], recvs, recv_counts=counts, root=root)

    def scatter(self, send: Array | None, recv: Array, counts: Sequence[int], root: int) -> Steps:
        """Copy through the root's slot, each rank its part."""
        sends = [] if send is None else [send]
        return self._transfer(
            _SCATTER, sends, [recv], send_counts=counts, root=root, most=max(counts)
        )

    def reduce_scatter(self, send: Array, recv: Array, counts: Sequence[int], op: str) -> Steps:
        """Reduce by blocks."""
        return self._transfer(_REDUCE_SCATTER, [send], [recv], op=op, send_counts=counts)

    def reduce_scatter_pieces(
        self, send: Sequence[Array], recv: Array, counts: Sequence[int], op: str
    ) -> Steps:
        """Reduce a list of arrays of one dtype as if it were one array, by blocks."""
        return self._transfer(_REDUCE_SCATTER, send, [recv], op=op, send_counts=counts)

    def allgather_pieces(self, send: Array, recv: Sequence[Array], counts: Sequence[int]) -> Steps:
        """Gather into a list of arrays as if it were one array."""
        return self._transfer(_ALLGATHER, [send], recv, recv_counts=counts)

    def alltoall(
        self, send: Array, recv: Array, send_counts: Sequence[int], recv_counts: Sequence[int]
    ) -> Steps:
        """Copy through every rank's slot, each rank its part."""
        most = np.array([max(*send_counts, *recv_counts)], np.int64)
        yield from self._transfer(_ALLREDUCE, [most], [most], op="max")
        yield from self._transfer(
            _ALLTOALL,
            *([send], [recv]),
            send_counts=send_counts,
            recv_counts=recv_counts,
            most=int(most[0]),
        )

    def close(self) -> None:
        """Free the memory and the MPI communicator."""
        self._liveness.close()
        self._mpi.close()


@dataclass
class _Spec:
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


class _Call:
    """The request of one call of the node; starts it as soon as the node is free."""

    def __init__(self, node: Any, spec: _Spec | None, status: int = _WAITING) -> None:
        self._node, self._spec = node, spec
        self.status = status

    def Test(self) -> bool:  # noqa: N802 - see Request
        return self.sleep(0.0)

    def detach(self) -> None:
        """Let a native thread carry on with the call."""
        if self._spec is None and self.status == _WAITING:
            self._node.detach()

    def sleep(self, seconds: float) -> bool:
        """Advance for about `seconds`; return whether the call is over."""
        if self._spec is not None:
            if self._node.is_busy:  # by a fast call of another thread
                return False
            self._spec.start(self._node)
            self._spec = None
        if self.status == _WAITING:
            self.status = self._node.wait(int(seconds * 1e9))
        return self.status != _WAITING


class _QueuedCall:
    """See `QueuedCall` of base.py; it is its own request."""

    def __init__(self, node: Any, array: Array, op: str, result: Array) -> None:
        self._node, self._op, self._result = node, op, result
        self.array = array
        self._number: int | None = None
        self._status = _WAITING

    def start(self, digest: int) -> None:
        """Queue it."""
        self._number = self._node.submit(self.array, self._op, self._result, digest)

    def Test(self) -> bool:  # noqa: N802 - see Request
        return self.sleep(0.0)

    def sleep(self, seconds: float) -> bool:
        """Let the time pass; return whether the call is over."""
        if self._status == _WAITING and self._number is not None:
            self._status = self._node.collect(self._number, int(seconds * 1e9))
        return self._status != _WAITING

    def transfer(self) -> Steps:
        """Wait until the call is over; return its result."""
        yield self
        if self._status == _MISMATCH:
            raise LinesDiffer
        return self._result


class _FastCalls:
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

    def queue(self, array: ArrayLike, op: str, out: Array | None) -> _QueuedCall | None:
        """Return an all-reduce that the kernels begin by themselves, or None."""
        if not self.may_queue or not isinstance(array, np.ndarray):
            return None
        if not self._node.is_common(array, op, out):
            return None
        return _QueuedCall(self._node, array, op, np.empty_like(array) if out is None else out)

    def resume(self) -> None:
        """Let queued calls begin again."""
        self._node.resume()

    def drop(self) -> None:
        """Forget the queued calls that have not begun."""
        self._node.drop()

    def carry_on(self, status: int, *arrays: Array) -> Steps:
        """Go on with a call; whoever gives it up keeps these steps, and so its arrays."""
        call = _Call(self._node, None, status)
        if status != _WAITING:
            self._node.end()  # its lines are still to be read, by this call before any other
        yield call
        del arrays
        if call.status == _MISMATCH:
            raise LinesDiffer


def _node_bytes(size: int) -> int:
    return int(kernels().node_bytes(size))
