"""Cut arrays as the kernels do (kernels/wire/pipeline/segments.cc)."""

from __future__ import annotations

from dataclasses import dataclass

from mpistrat import built_in_sizes
from mpistrat.bench.cost_model.formulas.layout import Layout

__all__ = ["Cut", "cut_owned", "cut_ring", "cut_rooted", "cut_whole", "is_ring"]

_PARTS = 4
_WHOLE_BYTES = 1 << 20


@dataclass(frozen=True)
class Cut:
    """How an array is cut.

    Attributes
    ----------
    count
        Segments.
    nbytes
        Of the longest.
    """

    count: int
    nbytes: float


def is_ring(nbytes: float, layout: Layout) -> bool:
    """Return whether an array is long enough for a ring: 16 KiB for each lane of each node."""
    return nbytes >= built_in_sizes.RING_BYTES * layout.lanes * layout.nodes


def cut_ring(nbytes: float, layout: Layout) -> Cut:
    """Cut what goes round the ring in a block for each node."""
    return _cut(nbytes, layout.lanes * layout.nodes)


def cut_rooted(nbytes: float, layout: Layout) -> Cut:
    """Cut what one node alone sends around the ring, or gets."""
    return _cut(nbytes, layout.lanes)


def cut_owned(nbytes: float, layout: Layout) -> Cut:
    """Cut one rank's block of an array that has a block for each rank; times the owners."""
    each = _cut(nbytes / layout.ranks, layout.lanes)
    return Cut(each.count * layout.most, each.nbytes)


def cut_whole(nbytes: float, layout: Layout) -> Cut:
    """Cut what is too short for a ring."""
    return _cut(nbytes, layout.lanes, _WHOLE_BYTES)


def _cut(nbytes: float, blocks: int, most: int = built_in_sizes.RING_MOST_BYTES) -> Cut:
    each = min(
        max(nbytes / _PARTS, built_in_sizes.RING_BYTES * blocks), most * blocks, max(nbytes, 1)
    )
    return Cut(max(int(-(-nbytes // each)), 1), each)
