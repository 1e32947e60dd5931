"""A pool of result buffers, used again when no result in them is referenced.

New memory costs more than a reduction: each of its pages has to be found and cleared first. It is
the rank's own, not shared: a forked child must not see, or change, the results of its parent.
"""

from __future__ import annotations

import weakref

import numpy as np

from mpistrat.types import Array

__all__ = ["ResultPool"]

_MOST_FREE = 4
_LEAST_BYTES = 128 << 10  # what is smaller comes from memory that the process has already


class ResultPool:
    """Blocks of bytes of one communicator, lent out as arrays. **Local.**

    A loan may end at any moment, in another thread or by the garbage collector: each change of
    what is free is one operation that cannot be interrupted.
    """

    def __init__(self) -> None:
        self._free: dict[int, Array] = {}  # by id, in the order in which they were given back

    def lend(self, nbytes: int) -> Array:
        """Return `nbytes` that nobody else uses."""
        if nbytes < _LEAST_BYTES:
            return np.empty(nbytes, np.uint8)
        blocks = list(self._free.values())  # kept for as long as their ids are in use
        fitting = [(one.size, id(one)) for one in blocks if nbytes <= one.size <= 2 * nbytes]
        block = self._free.pop(min(fitting)[1], None) if fitting else None
        if block is None:
            block = np.empty(nbytes, np.uint8)
        loan = _Loan(block, nbytes)
        weakref.finalize(loan, self._take_back, block).atexit = False
        return np.asarray(loan)

    def _take_back(self, block: Array) -> None:
        self._free[id(block)] = block
        for key in list(self._free)[:-_MOST_FREE]:  # sizes that are no longer asked for go first
            self._free.pop(key, None)


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
