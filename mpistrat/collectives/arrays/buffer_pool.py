"""`BufferPool`: memory of results, used again once no array shows part of it.

New memory costs more than a reduction: each of its pages has to be found and cleared first. It is
the process's own, not shared: a forked child must not see, or change, the results of its parent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mpistrat.types import Array

__all__ = ["BufferPool"]


class BufferPool:
    """Blocks of bytes that are lent out as arrays. All methods are **Local**.

    A loan may end at any moment, in another thread or by the garbage collector: each change of
    what is free is one operation that cannot be interrupted, and there is no lock, for which the
    end of a loan would have to wait.

    Parameters
    ----------
    least_bytes
        What is smaller comes from memory that the process has already.
    most_bytes
        What is larger is given back to the system, not kept.
    most_free
        How many free blocks are kept; those of sizes that are no longer asked for go first.
    """

    def __init__(
        self, least_bytes: int = 128 << 10, most_bytes: float = math.inf, most_free: int = 4
    ) -> None:
        self._least_bytes, self._most_bytes = least_bytes, most_bytes
        self._most_free = most_free
        self._free: dict[int, Array] = {}  # by id, in the order in which they were given back

    def lend(self, nbytes: int) -> Array:
        """Return `nbytes` that nobody else uses, of any contents."""
        if not self._least_bytes <= nbytes <= self._most_bytes:
            return np.empty(nbytes, np.uint8)
        blocks = list(self._free.values())  # kept for as long as their ids are in use
        fitting = [(one.size, id(one)) for one in blocks if nbytes <= one.size <= 2 * nbytes]
        block = self._free.pop(min(fitting)[1], None) if fitting else None
        if block is None:  # none fits, or another thread has just taken it
            block = np.empty(nbytes, np.uint8)
        return np.asarray(_Loan(self._take_back, block, nbytes))

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array of any contents, as ``np.empty`` does; it is the caller's."""
        return self.lend(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)

    def _take_back(self, block: Array) -> None:
        self._free[id(block)] = block
        for key in list(self._free)[: -self._most_free]:
            self._free.pop(key, None)


class _Loan:
    """A part of a block; the block is free again when no array refers to this."""

    def __init__(self, give_back: Callable[[Array], None], block: Array, nbytes: int) -> None:
        self._give_back, self._block = give_back, block
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (block.ctypes.data, False),
        }

    def __del__(self) -> None:  # weakref.finalize would take longer than a small reduction
        self._give_back(self._block)
