"""What a rank reaches its peers through: its node's memory, and its lane over the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from mpistrat.collectives.mpi import MpiBackend
from mpistrat.collectives.nodes import Nodes
from mpistrat.collectives.ring import Ring
from mpistrat.collectives.segments import Segment
from mpistrat.collectives.shm import ShmBackend
from mpistrat.types import Array

__all__ = ["Links"]


@dataclass(frozen=True)
class Links:
    """The two stages of every collective.

    Attributes
    ----------
    nodes
        Who is where.
    node
        The ranks of this node; None if there is no other.
    lane
        The ranks that carry the same slice, one a node; None on ranks that carry none, which there
        are where nodes have unequal numbers of ranks.
    """

    nodes: Nodes
    node: ShmBackend | None
    lane: MpiBackend | None

    @cached_property
    def ring(self) -> Ring | None:
        """The lane as a ring."""
        return None if self.lane is None else Ring(self.lane)

    @property
    def is_leader(self) -> bool:
        """Whether this is the rank of its node that short messages go through."""
        return self.nodes.local_rank == 0

    def mine(self, segment: Segment) -> list[int]:
        """Return how much of each block this rank carries."""
        if self.lane is None:
            return [0] * len(segment.blocks)
        return segment.counts(self.nodes.local_rank, self.nodes.lanes)

    def totals(self, segment: Segment) -> list[int]:
        """Return how much each rank of this node carries of all blocks."""
        lanes = self.nodes.lanes
        carried = [sum(segment.counts(lane, lanes)) for lane in range(lanes)]
        return [*carried, *[0] * (len(self.nodes.mates) - lanes)]

    def own(self, segment: Segment) -> list[int]:
        """Return how much each rank of this node carries of the node's own block."""
        lanes, node = self.nodes.lanes, self.nodes.index
        carried = [segment.counts(lane, lanes)[node] for lane in range(lanes)]
        return [*carried, *[0] * (len(self.nodes.mates) - lanes)]

    def views(self, array: Array, segment: Segment) -> Sequence[Array]:
        """Return the segment's parts of `array`, lane by lane."""
        lanes = self.nodes.lanes
        return [array[part] for lane in range(lanes) for part in segment.of_lane(lane, lanes)]
