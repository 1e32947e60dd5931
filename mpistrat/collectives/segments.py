"""How arrays are cut for several nodes: a turn of the ring, a block a node, a slice a lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpistrat import config
from mpistrat.collectives.nodes import Nodes
from mpistrat.types import Array

__all__ = ["Segment", "Segments", "pieces"]

_PARTS = 4  # what is not long is cut in so many, which can be under way at the same time
_WHOLE_BYTES = 1 << 20


@dataclass(frozen=True)
class Segment:
    """What goes in one turn.

    Attributes
    ----------
    blocks
        (start, count) in the long array of the block of each node; or one block that is no
        node's own, where the wire's part is not a ring's.
    owner
        Local rank whose block it is on each node, where blocks have owners.
    offset
        Where in the owners' own arrays the blocks begin.
    """

    blocks: tuple[tuple[int, int], ...]
    owner: int = 0
    offset: int = 0

    def of_lane(self, lane: int, lanes: int) -> list[slice]:
        """Return the slices of the blocks that one rank of each node carries."""
        return [
            slice(start + count * lane // lanes, start + count * (lane + 1) // lanes)
            for start, count in self.blocks
        ]

    def counts(self, lane: int, lanes: int) -> list[int]:
        """Return the lengths of these slices."""
        return [part.stop - part.start for part in self.of_lane(lane, lanes)]


@dataclass(frozen=True)
class Segments:
    """Cuts arrays of elements of `itemsize` bytes; all ranks cut alike."""

    nodes: Nodes
    itemsize: int

    def is_ring(self, count: int) -> bool:
        """Tell whether `count` elements are enough for a ring."""
        return count >= self._lane_elements(config.RING_BYTES) * self.nodes.count

    def shared(self, count: int) -> list[Segment]:
        """Cut an array that every rank has, and of which each node reduces a block."""
        p = self.nodes.count
        if not self.is_ring(count):
            least, most = map(self._lane_elements, (config.RING_BYTES, _WHOLE_BYTES))
            return [Segment((part,)) for part in _stretches(count, _PARTS, least, most)]
        return [
            Segment(tuple((start + n * i // p, n * (i + 1) // p - n * i // p) for i in range(p)))
            for start, n in self._stretches(count, p)
        ]

    def rooted(self, count: int, root: int) -> list[Segment]:
        """Cut an array of which the root's node has all; it goes on from node to node."""
        node, owner = self.nodes.places[root]
        return [
            Segment(
                tuple((start, n if i == node else 0) for i in range(self.nodes.count)),
                owner,
                start,
            )
            for start, n in self._stretches(count)
        ]

    def owned(self, counts: Sequence[int]) -> list[Segment]:
        """Cut an array that consists of a block of every rank, in rank order."""
        starts = [0, *np.cumsum(counts).tolist()]
        found = []
        for owner in range(max(map(len, self.nodes.groups))):
            ranks = [group[owner] if owner < len(group) else None for group in self.nodes.groups]
            mine = [(0, 0) if r is None else (starts[r], int(counts[r])) for r in ranks]
            for offset, most in self._stretches(max(n for _, n in mine)):
                blocks = [(start + offset, min(max(n - offset, 0), most)) for start, n in mine]
                found.append(Segment(tuple(blocks), owner, offset))
        return found

    def _stretches(self, count: int, blocks: int = 1) -> list[tuple[int, int]]:
        """Cut `count` elements in stretches of `blocks` messages for each lane."""
        least = self._lane_elements(config.RING_BYTES) * blocks
        most = self._lane_elements(config.RING_MOST_BYTES) * blocks
        return _stretches(count, _PARTS, least, most)

    def _lane_elements(self, nbytes: int) -> int:
        """Return how many elements make `nbytes` for each lane."""
        return max(nbytes // self.itemsize, 1) * self.nodes.lanes


def _stretches(count: int, parts: int, least: int, most: int) -> list[tuple[int, int]]:
    each = max(min(max(-(-count // parts), least), most, config.MAX_COUNT), 1)
    return [(start, min(each, count - start)) for start in range(0, count, each)]


def pieces(array: Array, counts: Sequence[int]) -> list[Array]:
    """Cut `array` into views of the given lengths."""
    starts = np.cumsum([0, *counts]).tolist()
    return [array[s : s + n] for s, n in zip(starts, counts, strict=False)]
