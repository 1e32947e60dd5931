"""Use memory again for results of one size that come again and again.

New memory has to be cleared by the system, page by page, which takes as long as to copy some rows
into it. So a few large results are kept when nobody has them any more, and the next ones are put
there.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from mpistrat.types import Array

__all__ = ["empty"]

_LEAST_BYTES, _MOST_BYTES = 1 << 20, 64 << 20  # smaller ones the allocator keeps; larger ones cost
_KEPT = 3  # in a process: one that is worked with, the one before it, and one more

_lock = threading.Lock()
_memories: list[Array] = []


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of any contents, as ``np.empty`` does; it is the caller's.

    Notes
    -----
    Up to three memories of up to 64 MiB stay with the process. One is used again only when there
    is no array left, of any shape, that shows part of it: all of them keep it alive.
    """
    nbytes = int(np.prod(shape)) * dtype.itemsize
    if not _LEAST_BYTES <= nbytes <= _MOST_BYTES:
        return np.empty(shape, dtype)
    with _lock:
        memory = _unused(nbytes)
        if memory is None:
            memory = np.empty(nbytes, np.uint8)
            _memories.append(memory)
            del _memories[:-_KEPT]  # of who has it still, or nobody's
        return memory[:nbytes].view(dtype).reshape(shape)


def _unused(nbytes: int) -> Array | None:
    """Return memory of about that size that only the list knows."""
    for index in range(len(_memories)):
        size = _memories[index].nbytes
        # Two references: that of the list, and that of the call.
        if size // 2 <= nbytes <= size and sys.getrefcount(_memories[index]) == _ONLY_HERE:
            _memories.append(_memories.pop(index))
            return _memories[-1]
    return None


def _count_of_one() -> int:
    alone = [np.empty(0)]
    return sys.getrefcount(alone[0])


_ONLY_HERE = _count_of_one()
