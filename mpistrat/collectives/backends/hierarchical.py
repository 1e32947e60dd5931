"""Collectives over several nodes: shared memory on each, MPI between them.

All of it is native (kernels/wire): a call is one state machine that needs no Python, so that it
can go on while Python computes. A long reduction is done in turns. In each, the ranks of a node
reduce their arrays in shared memory, every rank a slice; each slice goes round a ring of its own,
one rank a node, and is reduced and gathered there; and the ranks of the node gather the slices.
Several turns are under way at a time, so that the wire is never idle. ``reduce`` and
``reduce_scatter`` are the first half of that, ``bcast`` and ``allgather`` the second. Short arrays
travel with the headers, in as few messages as there can be, by one rank a node. ``gather``,
``scatter`` and ``alltoall`` are messages from rank to rank, since there every byte crosses the
wire once anyway; so is ``allgather`` of short arrays, in as few steps as there can be.

Nodes may have unequal numbers of ranks, in any order: as many ranks of each node work on the wire
as the least node has.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import Any, NoReturn

import numpy as np

from mpistrat import built_in_sizes
from mpistrat.collectives.backends.base import Capabilities, Steps
from mpistrat.collectives.backends.mpi import MpiBackend
from mpistrat.collectives.backends.mpi_support.nodes import Nodes
from mpistrat.collectives.backends.shared_memory import bootstrap, tuning_table
from mpistrat.collectives.backends.shared_memory.registered import private_memory
from mpistrat.collectives.backends.shared_memory.tuning import Tunings, WireTuning, wire_from_entry
from mpistrat.collectives.backends.shm import ShmBackend
from mpistrat.errors import BackendUnavailableError
from mpistrat.system.kernels import kernels
from mpistrat.system.liveness.probe import Probe

__all__ = ["HierarchicalBackend"]

_FIRST_TAG = 16  # of the wire's messages; what else MPI carries has other tags (mpi.py)


class HierarchicalBackend(ShmBackend):
    """Collectives by shared memory on the nodes, and rings of messages between them.

    Its calls are those of the backend `shm`, of a wire in place of a node.

    Attributes
    ----------
    nodes
        Where the ranks are.

    Notes
    -----
    Cost: what the rank sends that sends most. There are P ranks on N nodes, of each of which L
    carry data (as many as the smallest node has). An array has n bytes, all blocks together
    counted. D is log2 N, for other numbers than powers of two rounded down plus 1; B is log2 P
    rounded up; r and R are `RING_BYTES` and `RING_MOST_BYTES` of built_in_sizes.py or of the
    tuning. Of float16 and bfloat16, bytes are twice as many.

    ====================================  =============================  =======================
    call                                  messages                       bytes
    ====================================  =============================  =======================
    gate alone, barrier, close            D                              64 D
    reductions, bcast: n <= 8 KiB         D                              D (64 + n)
    all others: n <= 1 KiB                D                              D (64 + n)
    (alltoall: P times a rank's n)
    beyond these, after the gate:
    allreduce: n < r P                    D s, s <= 4 up to 4 MiB L      D n / L
    reduce, bcast, reduce_scatter: same
    allreduce: n >= r P                   2 (N - 1) s, s >= n / (R L N)  2 (N - 1) / N n / L
    reduce, bcast: n >= r P               s >= n / (R L)                 n / L
    reduce_scatter, allgather: n >= r P   (N - 1) L s, s >= n / (R L P)  (N - 1) n / P
    allgather: n < r P                    B                              (P - 1) / P n
    scatter, at the root: P > 32, n <=    7 for each factor of 8 in P    (P - 1) / P n
    2 KiB P
    scatter, at the root: all others      P - 1                          (P - 1) / P n
    gather: P > 32, n <= 2 KiB P          1                              n / 8 to n / 2
    gather: all others                    1                              n / P
    alltoall                              P - 1                          (P - 1) / P n
    ====================================  =============================  =======================

    s is the number of segments: at least 4 where that leaves each message r bytes. A ring's
    messages have r bytes or more, so that their number is at most 2 n / (r L), for however many
    nodes; likewise more than 31 messages of a scatter have 2 KiB or more on average. The root of a
    gather receives as many messages as that of a scatter sends. An all-gather of unequal lengths
    first gathers the lengths: 32 P bytes and B messages more.

    References
    ----------
    tests/mpi/scaling counts the messages and compares them with this table.
    """

    name = "hierarchical"
    needs_longest = False
    unavailable = staticmethod(MpiBackend.unavailable)

    def __init__(
        self,
        mpi: MpiBackend,
        nodes: Nodes,
        node: ShmBackend | None,
        wire: Any,
        tuning: WireTuning,
    ) -> None:
        near = None if node is None else node.control.liveness
        super().__init__(mpi, wire, _NodesProbe(nodes.mates, near, mpi.control.liveness))
        self.nodes, self._shm = nodes, node
        self.tune_wire(tuning)
        weakref.finalize(self, wire.halt)  # at the latest before MPI is finalized

    @classmethod
    def over(cls, mpi: MpiBackend, timeout: float, nodes: Nodes | None = None) -> ShmBackend:
        """Make the backend of ranks that have just met. **Collective.**

        On one node it is the backend `shm` under this name.

        Raises
        ------
        BackendUnavailableError
            On all ranks: those of some node cannot share memory, or some cannot call MPI.
        """
        nodes = Nodes.find(mpi, timeout) if nodes is None else nodes
        if nodes.count == 1:
            shm = ShmBackend.over(mpi, timeout)
            shm.name = cls.name
            return shm
        # By UDP, which only the exchange of MPI's headers starts by itself. The ranks of this node
        # are left out: the node's own backend has their pidfds.
        mpi.watch(timeout, nodes.mates)
        local = mpi.split(nodes.index if len(nodes.mates) > 1 else None, timeout)
        node, wire, complaint = None, None, ""
        try:
            node = None if local is None else ShmBackend.over(local, timeout)
            wire = _open_wire(mpi, nodes, node)
        except BackendUnavailableError as error:
            # Not raised yet: ranks of other nodes wait for this one in the all-reduce below.
            complaint = f"the node of rank {mpi.rank}: {error}"
        # The others bring zeros, so that the reduction by "or" hands on rank 0's figures.
        mine = _tuning(nodes) if mpi.rank == 0 else WireTuning()
        told = np.array([bool(complaint), *astuple(mine)], np.int64)
        with bootstrap.kept(told):
            bootstrap.run(mpi.allreduce(told, told, "or"), timeout, mpi)
        has_complaints, *figures = told.tolist()
        if has_complaints:
            texts = bootstrap.run(bootstrap.exchange(mpi, complaint), timeout, mpi)
            opened = local if node is None else node
            if opened is not None:
                opened.close()
                opened.control.close()
            raise BackendUnavailableError(next(text for text in texts if text))
        return cls(mpi, nodes, node, wire, WireTuning(*figures))

    def tune(self, tunings: Tunings) -> None:
        """Set where the node's ways give way to each other; the same on all ranks. **Local.**"""
        if self._shm is not None:
            self._shm.tune(tunings)

    def tune_wire(self, tuning: WireTuning) -> None:
        """Set the sizes of messages; between calls, and the same on all ranks. **Local.**"""
        self._node.tune(_figures(tuning))

    def capabilities(self) -> Capabilities:
        """Everything, as NumPy would do it."""
        can = super().capabilities()
        return can if self._mpi.may_thread else replace(can, asynchronous=False)

    def allocate(self, nbytes: int, is_shared: bool) -> Steps:
        """Return private memory: the slices of a node are reduced in its own."""
        return private_memory(self, nbytes, is_shared)

    def close(self) -> None:
        """Stop the wire, and free the node's backend."""
        self._node.halt()
        if self._shm is not None:
            self._shm.close()
            self._shm.control.close()


class _NodesProbe(Probe):
    """The processes of this node, of which the kernel tells at once, and those of others."""

    def __init__(self, mates: Sequence[int], near: Probe | None, far: Probe) -> None:
        self._mates, self._near, self._far = mates, near, far

    def ended(self, wait: int = 0) -> Sequence[int]:
        """Return the ranks whose processes have ended."""
        near = () if self._near is None else [self._mates[local] for local in self._near.ended()]
        return [*near, *self._far.ended(wait)]


def _tuning(nodes: Nodes) -> WireTuning:
    key = tuning_table.wire_key(nodes.lanes, nodes.count)
    return tuning_table.find(key, wire_from_entry)


def _figures(tuning: WireTuning) -> tuple[int, ...]:
    """Return them in the order of MpistratWireTuning (kernels/include/mpistrat/wire.h)."""
    return *astuple(tuning.filled()), built_in_sizes.MAX_COUNT


def _open_wire(mpi: MpiBackend, nodes: Nodes, node: ShmBackend | None) -> Any:
    """Open this rank's end. **Local.**

    Raises
    ------
    BackendUnavailableError
        The kernels cannot call this MPI library.
    """
    functions = mpi.for_kernels(_FIRST_TAG)
    # The kernels are compiled without mpi.h and pass handles as words; a message shows whether
    # this library takes them.
    if not kernels().can_call_mpi(functions, mpi.rank):
        raise BackendUnavailableError("MPI did not deliver a message that the kernels sent")

    def fail(code: int) -> NoReturn:
        raise mpi.failure(code)

    node_of = [nodes.places[rank][0] for rank in range(mpi.size)]
    sizes = _figures(WireTuning())
    native = None if node is None else node.native
    address = 0 if native is None else native.address
    may_thread = mpi.may_thread
    return kernels().Wire(functions, native, address, mpi.rank, node_of, sizes, may_thread, fail)
