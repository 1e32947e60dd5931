"""Reductions over several nodes: on each by shared memory, between them by every rank's slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat.collectives import doubling
from mpistrat.collectives.base import Steps
from mpistrat.collectives.links import Links
from mpistrat.collectives.segments import Segment, pieces
from mpistrat.types import Array

__all__ = ["Reduction"]


@dataclass(frozen=True)
class Reduction:
    """One call. Half types are float32 until they are rounded, once, at the end.

    Attributes
    ----------
    links
        The ranks to reduce over.
    op
        Reduction, as in reductions.py.
    send
        This rank's array.
    recv
        Where the result goes; None where there is none.
    """

    links: Links
    op: str
    send: Array
    recv: Array | None

    @property
    def base(self) -> str:
        """What is done step by step."""
        return "sum" if self.op == "mean" else self.op

    @property
    def divisor(self) -> int:
        """What the end result is divided by."""
        return len(self.links.nodes.places) if self.op == "mean" else 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the accumulation."""
        dtype = self.send.dtype
        return np.dtype(np.float32) if _is_half(dtype) else dtype

    # ------------------------------------------------------------------------ short arrays

    def short(self) -> Steps:
        """Reduce so that every rank gets the result; one rank a node works on the wire."""
        node, recv = self.links.node, self.recv
        if recv is None:
            raise AssertionError("every rank gets the result")
        total = self.send.astype(self.dtype)
        if node is not None:
            yield from node.reduce(total, total if self.links.is_leader else None, self.base, 0)
        if self.links.is_leader:
            yield from self._across(0, total)
            self._finish(total, recv)
        if node is not None:
            yield from node.bcast(recv, 0)

    def _across(self, call: int, total: Array) -> Steps:
        """Reduce over the lane in place, in few steps."""
        lane = self.links.lane
        if lane is None or total.size == 0:
            return
        if _is_right_in_mpi(self.base, total.dtype):
            yield from lane.allreduce(total, total, self.base)
        else:
            yield from doubling.allreduce(lane, call, total, self.base)

    def _finish(self, total: Array, into: Array) -> None:
        if self.op == "mean":
            np.divide(total, self.divisor, out=total)
        into[:] = total

    # ------------------------------------------------------------------------- long arrays

    def load(self, segment: Segment) -> Steps:
        """Reduce on the node; return this lane's slice of each block."""
        links = self.links
        if links.node is None:
            return [
                view.astype(self.dtype, copy=False) for view in self._views(self.send, segment)
            ]
        mine = links.mine(segment)
        slices = np.empty(sum(mine), self.dtype)
        sends = [view.astype(self.dtype, copy=False) for view in self._views(self.send, segment)]
        yield from links.node.reduce_scatter_pieces(
            sends, slices, links.totals(segment), self.base
        )
        return pieces(slices, mine)

    def carry_all(self, call: int, segment: Segment, sources: Sequence[Array]) -> Steps:
        """Reduce the slices over the lane; return the result, which all its ranks get."""
        out, targets = self._targets(segment)
        if len(segment.blocks) == 1:
            yield from self._carry_whole(call, sources[0], targets[0])
        elif self.links.ring is not None:
            yield from self._carry(call, sources, targets[self.links.nodes.index])
            yield from self.links.ring.allgather(call, targets)
        return out

    def carry_own(self, call: int, segment: Segment, sources: Sequence[Array]) -> Steps:
        """Reduce the slices over the lane; return the result of this node's own block."""
        into = np.empty(self.links.mine(segment)[self.links.nodes.index], self.send.dtype)
        yield from self._carry(call, sources, into)
        return into

    def _carry(self, call: int, sources: Sequence[Array], into: Array) -> Steps:
        if self.links.ring is not None:
            yield from self.links.ring.reduce_scatter(call, sources, into, self.base, self.divisor)

    def _carry_whole(self, call: int, source: Array, target: Array) -> Steps:
        total = source.copy() if self.links.node is None else source
        yield from self._across(call, total)
        self._finish(total, target)

    def _targets(self, segment: Segment) -> tuple[Array, Sequence[Array]]:
        """Return where the results go: where they belong or, to be shared, beside each other."""
        if self.recv is not None and self.links.node is None:
            return self.recv, self._views(self.recv, segment)
        mine = self.links.mine(segment)
        out = np.empty(sum(mine), self.send.dtype)
        return out, pieces(out, mine)

    def store_all(self, segment: Segment, out: Array) -> Steps:
        """Give the results of all lanes to every rank of the node."""
        node = self.links.node
        if node is not None and self.recv is not None:
            views = self._views(self.recv, segment)
            yield from node.allgather_pieces(out, views, self.links.totals(segment))

    def store_own(self, segment: Segment, own: Array) -> Steps:
        """Give the results of all lanes to the rank of this node whose block it is."""
        counts, node = self.links.own(segment), self.links.node
        into = None
        if self.links.nodes.local_rank == segment.owner and self.recv is not None:
            into = self.recv[segment.offset : segment.offset + sum(counts)]
        if node is None:
            if into is not None:
                into[:] = own
        elif sum(counts):
            yield from node.gather(own, into, counts, segment.owner)

    def _views(self, array: Array, segment: Segment) -> Sequence[Array]:
        return self.links.views(array, segment)


def _is_half(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 2 and dtype.kind not in "iu"


def _is_right_in_mpi(op: str, dtype: np.dtype[Any]) -> bool:
    """Tell whether MPI's reduction is NumPy's: it may lose NaN, and saturate short integers."""
    if dtype.kind in "iu":
        return dtype.itemsize >= 4 or op not in ("sum", "prod")
    return dtype.kind == "b" or op not in ("min", "max")
