"""Collectives over several nodes: shared memory on each, MPI between them.

A long reduction is done in turns. In each, the ranks of a node reduce their arrays in shared
memory, every rank a slice; each slice goes round a ring of its own, one rank a node, and is
reduced and gathered there; and the ranks of the node gather the slices. Several turns are under
way at a time, so that the wire is never idle. ``reduce`` and ``reduce_scatter`` are the first half
of that, ``bcast`` and ``allgather`` the second. Short arrays go over the wire in as few steps as
there can be, by one rank a node; ``gather``, ``scatter`` and ``alltoall`` are MPI's own, since
there every byte crosses the wire once anyway.

Nodes may have unequal numbers of ranks, in any order: as many ranks of each node work on the wire
as the least node has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpistrat import config
from mpistrat.collectives import rendezvous
from mpistrat.collectives.base import Capabilities, FastCalls, Request, Steps
from mpistrat.collectives.lines import Lines
from mpistrat.collectives.links import Links
from mpistrat.collectives.mpi import MpiBackend
from mpistrat.collectives.nodes import Nodes
from mpistrat.collectives.reducing import Reduction
from mpistrat.collectives.registered import private_memory
from mpistrat.collectives.segments import Segment, Segments
from mpistrat.collectives.shm import CAPABILITIES, ShmBackend
from mpistrat.collectives.spreading import Spread
from mpistrat.collectives.stages import Pipeline
from mpistrat.errors import BackendUnavailableError
from mpistrat.types import Array

__all__ = ["HierarchicalBackend"]

_DEPTH = 16  # turns under way: what hides the time between a message and its answer


class HierarchicalBackend:
    """Collectives by shared memory on the nodes, and rings of messages between them."""

    name = "hierarchical"
    unavailable = staticmethod(MpiBackend.unavailable)
    fast: FastCalls | None = None
    guards_next = False

    def __init__(self, mpi: MpiBackend, links: Links) -> None:
        self._mpi, self._links = mpi, links
        self.rank, self.size = mpi.rank, mpi.size
        self.letters = mpi.letters

    @classmethod
    def open(cls, comm: Any, timeout: float) -> HierarchicalBackend | ShmBackend:
        """Bring the ranks of `comm` together; all of them get the backend, or the same error.

        On one node it is the backend `shm` under this name.
        """
        mpi = MpiBackend.open(comm, timeout)
        try:
            nodes = Nodes.find(mpi, timeout)
            if nodes.count > 1:
                return cls.over(mpi, nodes, timeout)
            shm = ShmBackend.over(mpi, timeout)
            shm.name = cls.name
            return shm
        except BackendUnavailableError:
            mpi.close()
            raise

    @classmethod
    def over(cls, mpi: MpiBackend, nodes: Nodes, timeout: float) -> HierarchicalBackend:
        """Make the backend of ranks that have just met. **Collective.**

        Raises
        ------
        BackendUnavailableError
            On all ranks: those of some node cannot share memory.
        """
        local = mpi.split(nodes.index if len(nodes.mates) > 1 else None, timeout)
        lane = mpi.split(nodes.local_rank if nodes.local_rank < nodes.lanes else None, timeout)
        node, complaint = None, ""
        try:
            node = None if local is None else ShmBackend.over(local, timeout)
        except BackendUnavailableError as error:
            complaint = f"the node of rank {mpi.rank}: {error}"
        complaints = np.array([bool(complaint)])
        rendezvous.run(mpi.allreduce(complaints, complaints, "or"), timeout, mpi)
        if complaints[0]:
            texts = rendezvous.run(rendezvous.exchange(mpi, complaint), timeout, mpi)
            for opened in (local if node is None else node, lane):
                if opened is not None:
                    opened.close()
            raise BackendUnavailableError(next(text for text in texts if text))
        return cls(mpi, Links(nodes, node, lane))

    def capabilities(self) -> Capabilities:
        """Everything but what only one node can do."""
        return replace(CAPABILITIES, asynchronous=False, checks=False)

    # ---------------------------------------------------------------------------- the gate

    def open_gate(self, nbytes: int) -> tuple[Array, Array]:
        """Return the line and the table."""
        leaders = self._links.lane if self._links.is_leader else None
        self._lines = Lines(self._links.nodes, self._links.node, leaders, nbytes)
        return self._lines.line, self._lines.table

    def post(self) -> Request:
        """Show this rank's line."""
        return self._lines.post()

    def announce(self, notice: bytes) -> None:
        """Send the notice by MPI."""
        self._mpi.announce(notice)

    def heard(self) -> tuple[int, bytes] | None:
        """Receive a notice by MPI."""
        return self._mpi.heard()

    def allocate(self, nbytes: int, is_shared: bool) -> Steps:
        """Return private memory: the slices of a node are reduced in its own."""
        return private_memory(self, nbytes, is_shared)

    def lost(self) -> Sequence[int]:
        """Return the ranks of this node whose processes have ended."""
        node, mates = self._links.node, self._links.nodes.mates
        return () if node is None else [mates[local] for local in node.lost()]

    # -------------------------------------------------------------------------- reductions

    def _pipeline(
        self,
        load: Callable[[Segment], Steps],
        carry: Callable[[int, Segment, Any], Steps],
        store: Callable[[Segment, Any], Steps],
    ) -> Pipeline[Segment]:
        return Pipeline(load, carry, store, self._mpi.test_some, _DEPTH)

    def _segments(self, array: Array) -> Segments:
        return Segments(self._links.nodes, array.itemsize)

    def allreduce(self, send: Array, recv: Array, op: str) -> Steps:
        """Reduce and gather by slices, or by one rank a node if it is short."""
        call = Reduction(self._links, op, send, recv)
        segments = self._segments(send)
        if send.nbytes <= config.SHORT_BYTES and not segments.is_ring(send.size):
            return call.short()
        pipeline = self._pipeline(call.load, call.carry_all, call.store_all)
        return pipeline.run(segments.shared(send.size))

    def allreduce_pieces(self, send: Sequence[Array], recv: Sequence[Array], op: str) -> Steps:
        """Reduce one by one."""
        for one, total in zip(send, recv, strict=True):
            yield from self.allreduce(one, total, op)

    def reduce(self, send: Array, recv: Array | None, op: str, root: int) -> Steps:
        """Reduce by slices from node to node; what is short is reduced for all."""
        segments = self._segments(send)
        if segments.is_ring(send.size):
            call = Reduction(self._links, op, send, recv)
            pipeline = self._pipeline(call.load, call.carry_own, call.store_own)
            return pipeline.run(segments.rooted(send.size, root))
        total = np.empty(send.size, send.dtype) if recv is None else recv
        return self.allreduce(send, total, op)

    def reduce_scatter(self, send: Array, recv: Array, counts: Sequence[int], op: str) -> Steps:
        """Reduce by slices; what is short is reduced for all."""
        segments = self._segments(send)
        if segments.is_ring(send.size):
            call = Reduction(self._links, op, send, recv)
            pipeline = self._pipeline(call.load, call.carry_own, call.store_own)
            yield from pipeline.run(segments.owned(counts))
        else:
            total = np.empty(send.size, send.dtype)
            yield from self.allreduce(send, total, op)
            start = sum(counts[: self.rank])
            recv[:] = total[start : start + recv.size]

    # ---------------------------------------------------------------------------- movement

    def bcast(self, buffer: Array, root: int) -> Steps:
        """Copy from node to node by slices; MPI's own between leaders if it is short."""
        segments = self._segments(buffer)
        if not segments.is_ring(buffer.size):
            return self._bcast_short(buffer, root)
        call = Spread(self._links, buffer, buffer)
        pipeline = self._pipeline(call.load, call.carry, call.store)
        return pipeline.run(segments.rooted(buffer.size, root))

    def _bcast_short(self, buffer: Array, root: int) -> Steps:
        links = self._links
        origin, owner = links.nodes.places[root]
        is_origin = links.nodes.index == origin
        if links.node is not None and is_origin:
            yield from links.node.bcast(buffer, owner)
        if links.is_leader and links.lane is not None:
            yield from links.lane.bcast(buffer, origin)
        if links.node is not None and not is_origin:
            yield from links.node.bcast(buffer, 0)

    def allgather(self, send: Array, recv: Array, counts: Sequence[int]) -> Steps:
        """Gather by slices; MPI's own if it is short."""
        segments = self._segments(recv)
        if not segments.is_ring(recv.size):
            return self._mpi.allgather(send, recv, counts)
        call = Spread(self._links, send, recv)
        return self._pipeline(call.load, call.carry, call.store).run(segments.owned(counts))

    def gather(self, send: Array, recv: Array | None, counts: Sequence[int], root: int) -> Steps:
        """Gather by MPI: each byte crosses the wire once."""
        return self._mpi.gather(send, recv, counts, root)

    def scatter(self, send: Array | None, recv: Array, counts: Sequence[int], root: int) -> Steps:
        """Scatter by MPI: each byte crosses the wire once."""
        return self._mpi.scatter(send, recv, counts, root)

    def alltoall(
        self, send: Array, recv: Array, send_counts: Sequence[int], recv_counts: Sequence[int]
    ) -> Steps:
        """Exchange by MPI: each byte crosses the wire once."""
        return self._mpi.alltoall(send, recv, send_counts, recv_counts)

    def close(self) -> None:
        """Free the memory and the MPI communicators."""
        for opened in (self._links.node, self._links.lane, self._mpi):
            if opened is not None:
                opened.close()
