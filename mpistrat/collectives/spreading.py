"""Copies over several nodes: each byte comes to a node once, by the slices of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpistrat.collectives.base import Steps
from mpistrat.collectives.links import Links
from mpistrat.collectives.segments import Segment, pieces
from mpistrat.types import Array

__all__ = ["Spread"]


@dataclass(frozen=True)
class Spread:
    """One call: the owners' blocks of each segment go to every rank.

    Attributes
    ----------
    links
        The ranks.
    send
        What this rank owns.
    recv
        What every rank gets.
    """

    links: Links
    send: Array
    recv: Array

    def load(self, segment: Segment) -> Steps:
        """Cut the own block for the lanes; return the lane's slices, with the own one filled."""
        links = self.links
        counts, node = links.own(segment), links.node
        whole = None
        if links.nodes.local_rank == segment.owner:
            whole = self.send[segment.offset : segment.offset + sum(counts)]
        if node is None:
            blocks = links.views(self.recv, segment)
            mine = blocks[links.nodes.index]
            if whole is not None and whole.ctypes.data != mine.ctypes.data:
                mine[:] = whole
            return blocks
        lengths = links.mine(segment)
        blocks = pieces(np.empty(sum(lengths), self.recv.dtype), lengths)
        if sum(counts):
            mine = blocks[links.nodes.index]
            yield from node.scatter(whole, mine, counts, segment.owner)
        return blocks

    def carry(self, call: int, segment: Segment, blocks: Sequence[Array]) -> Steps:
        """Gather the slices over the lane."""
        if self.links.ring is not None:
            yield from self.links.ring.allgather(call, blocks)
        return blocks

    def store(self, segment: Segment, blocks: Sequence[Array]) -> Steps:
        """Give the slices of all lanes to every rank of the node."""
        node = self.links.node
        if node is not None:
            views = self.links.views(self.recv, segment)
            yield from node.allgather_pieces(_joined(blocks), views, self.links.totals(segment))


def _joined(blocks: Sequence[Array]) -> Array:
    """Return the array that adjacent views are cut from."""
    base = blocks[0].base
    if base is None:
        raise AssertionError("the blocks are views")
    return base
