"""Cut flat arrays of one or more blocks in windows that fit into buffers of a fixed size.

A transfer has blocks on its sending and on its receiving side: one for each rank where every rank
brings or gets something else, else a single one. Window w holds elements [w * length, (w + 1) *
length) of each block, as far as the block has so many, one block after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Blocks", "Part", "Window", "windows"]

_ALIGNMENT = 16  # bytes; kernels read and write so many at once


@dataclass(frozen=True)
class Window:
    """The elements from `start` on, at most `length` of them, of each block of a transfer."""

    start: int
    length: int

    def lengths(self, counts: Sequence[int]) -> list[int]:
        """Return how many elements the window has of blocks of `counts` elements."""
        return [min(max(count - self.start, 0), self.length) for count in counts]


def windows(longest: int, itemsize: int, blocks: int, buffer_bytes: int) -> Iterator[Window]:
    """Yield the windows of a transfer, of which the buffers have room for all blocks.

    Parameters
    ----------
    longest
        Elements of the longest block of any rank.
    itemsize
        Bytes of an element.
    blocks
        Number of blocks of the side with more of them; the same on all ranks.
    buffer_bytes
        Size of a buffer.
    """
    step = max(1, _ALIGNMENT // itemsize)
    length = max(1, buffer_bytes // (itemsize * blocks) // step * step)
    for start in range(0, longest, length):
        yield Window(start, length)


class Part(NamedTuple):
    """What a window has of a block: the address where that begins, and its bytes."""

    address: int
    nbytes: int


@dataclass(frozen=True)
class Blocks:
    """A flat, contiguous array of CuPy, and the number of elements in each of its blocks."""

    array: Any
    counts: Sequence[int]

    @classmethod
    def one(cls, array: Any) -> Blocks:
        """Return the array as a single block."""
        return cls(array, [array.size])

    def parts(self, window: Window) -> list[Part]:
        """Return what a window has of each block; some may be empty.

        No views: CuPy takes longer to make one than a GPU to copy it.
        """
        address, itemsize = int(self.array.data.ptr), self.array.itemsize
        parts = []
        for count, length in zip(self.counts, window.lengths(self.counts), strict=True):
            first = address + min(window.start, count) * itemsize
            parts.append(Part(first, length * itemsize))
            address += count * itemsize
        return parts
