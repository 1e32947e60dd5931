"""The table of costs in the docstring of `HierarchicalBackend`, as functions.

Messages and bytes are those that the rank sends that sends most. `n` is in bytes: of the whole
array, or of all blocks together, which are of equal length. Arrays are float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mpistrat import built_in_sizes

__all__ = ["Cost", "Shape"]

_HEAD = 64  # kHeadBytes of kernels/wire/header_exchange.h
_BLOCKS = 1 << 10  # kMostBytes of kernels/wire/short_blocks.h
_WHOLE = 1 << 20  # kWholeBytes of kernels/wire/pipeline/segments.cc
_FAN_OUT = 8  # kFanOut of kernels/wire/algorithms/block_tree.h
_TREE_RANKS, _TREE_BLOCK = 32, 2 << 10  # kTree... of kernels/wire/direct_messages.cc


class Cost(NamedTuple):
    """Messages and bytes."""

    messages: int
    nbytes: int

    def __add__(self, other: object) -> Cost:
        if not isinstance(other, Cost):
            return NotImplemented
        return Cost(self.messages + other.messages, self.nbytes + other.nbytes)


@dataclass(frozen=True)
class Shape:
    """`nodes` nodes of `lanes` ranks each."""

    nodes: int
    lanes: int

    @property
    def ranks(self) -> int:
        """P."""
        return self.nodes * self.lanes

    @property
    def doubling(self) -> int:
        """D: steps of a recursive doubling over the nodes."""
        whole = self.nodes.bit_length() - 1
        return whole + (self.nodes != 1 << whole)

    def gate(self) -> Cost:
        """Row "gate"."""
        return self._riding(0)

    def _riding(self, n: int) -> Cost:
        return Cost(self.doubling, self.doubling * (_HEAD + n))

    def _is_ring(self, n: int) -> bool:
        return n >= built_in_sizes.RING_BYTES * self.ranks

    def _segments(self, n: int, blocks: int) -> int:
        """Return in how many segments `n` bytes go, which have `blocks` messages a lane."""
        least = built_in_sizes.RING_BYTES * self.lanes * blocks
        most = built_in_sizes.RING_MOST_BYTES * self.lanes * blocks
        return _cut(n, least, most)

    def allreduce(self, n: int) -> Cost:
        """Rows "allreduce"."""
        if n <= built_in_sizes.SHORT_BYTES:
            return self._riding(n)
        if not self._is_ring(n):
            return self.gate() + self._doubled(n)
        turns = 2 * (self.nodes - 1)
        sent = turns * n // self.ranks
        return self.gate() + Cost(self._segments(n, self.nodes) * turns, sent)

    def _doubled(self, n: int) -> Cost:
        segments = _cut(n, built_in_sizes.RING_BYTES * self.lanes, _WHOLE * self.lanes)
        return Cost(self.doubling * segments, self.doubling * n // self.lanes)

    def _rooted(self, n: int) -> Cost:
        """Return the cost of reduce and bcast."""
        if n <= built_in_sizes.SHORT_BYTES:
            return self._riding(n)
        if not self._is_ring(n):
            return self.gate() + self._doubled(n)
        return self.gate() + Cost(self._segments(n, 1), n // self.lanes)

    reduce = bcast = _rooted

    def _owned(self, n: int) -> Cost:
        turns = (self.nodes - 1) * self.lanes * self._segments(n // self.ranks, 1)
        return self.gate() + Cost(turns, (self.nodes - 1) * n // self.ranks)

    def reduce_scatter(self, n: int) -> Cost:
        """Rows "reduce_scatter"."""
        return self._owned(n) if self._is_ring(n) else self.allreduce(n)

    def allgather(self, n: int) -> Cost:
        """Rows "allgather"."""
        if n <= _BLOCKS:
            return self._riding(n)
        if self._is_ring(n):
            return self._owned(n)
        steps = (self.ranks - 1).bit_length()
        return self.gate() + Cost(steps, n - n // self.ranks)

    def scatter(self, n: int) -> Cost:
        """Rows "gather and scatter"; a gather's root receives what a scatter's sends."""
        if n <= _BLOCKS:
            return self._riding(n)
        size = self.ranks
        messages = _branches(size) if self._is_tree(n) else size - 1
        return self.gate() + Cost(messages, n - n // size)

    def gather(self, n: int) -> Cost:
        """Rows "gather and scatter": one message, of up to 1/8 of the ranks' blocks or more."""
        if n <= _BLOCKS:
            return self._riding(n)
        size, block = self.ranks, n // self.ranks
        return self.gate() + Cost(1, block * (_longest_branch(size) if self._is_tree(n) else 1))

    def _is_tree(self, n: int) -> bool:
        return self.ranks > _TREE_RANKS and n <= _TREE_BLOCK * self.ranks

    def alltoall(self, n: int) -> Cost:
        """Rows "alltoall"; `n` is what one rank sends."""
        if n * self.ranks <= _BLOCKS:
            return self._riding(n * self.ranks)
        return self.gate() + Cost(self.ranks - 1, n - n // self.ranks)


def _cut(n: int, least: int, most: int) -> int:
    return -(-n // min(max(-(-n // 4), least), most))


def _branches(size: int) -> int:
    """Return how many children the root of a tree of `size` ranks has."""
    count, width = 0, 1
    while width < size:
        count += -(-min(_FAN_OUT * width, size) // width) - 1
        width *= _FAN_OUT
    return count


def _longest_branch(size: int) -> int:
    """Return the most ranks in a branch: a child of the root, and all below it."""
    widths: list[int] = [
        _FAN_OUT**level for level in range(size.bit_length()) if _FAN_OUT**level < size
    ]
    return max(min(width, size - width) for width in widths)
