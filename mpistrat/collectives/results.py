"""Memory for the results of fused calls, used again once no result in it is in use any more.

New memory costs more than a reduction: each of its pages has to be found and cleared first. And
memory that is registered can be written by all ranks in place.
"""

from __future__ import annotations

import weakref

import numpy as np

from mpistrat.types import Array

__all__ = ["ResultPool"]

_LEAST_BYTES = 128 << 10  # what is smaller comes from memory that the process has already


class ResultPool:
    """Blocks of bytes of one communicator, lent out as arrays. **Local.**"""

    def __init__(self) -> None:
        self._free: list[Array] = []

    def lend(self, nbytes: int) -> Array | None:
        """Return `nbytes` that nobody else uses; None if there is no block for them."""
        if nbytes < _LEAST_BYTES:
            return np.empty(nbytes, np.uint8)
        sizes = [(block.size, index) for index, block in enumerate(self._free)]
        fitting = [one for one in sizes if nbytes <= one[0] <= 2 * nbytes]
        if not fitting:
            return None
        block = self._free.pop(min(fitting)[1])
        loan = _Loan(block, nbytes)
        weakref.finalize(loan, self._free.append, block).atexit = False
        return np.asarray(loan)

    def add(self, block: Array) -> None:
        """Take in a block of bytes."""
        self._free.append(block)

    def clear(self) -> None:
        """Drop the blocks that are not lent out."""
        self._free.clear()


class _Loan:
    """A part of a block; the block is free again when no array refers to this."""

    def __init__(self, block: Array, nbytes: int) -> None:
        self._block = block
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (block.ctypes.data, False),
        }
