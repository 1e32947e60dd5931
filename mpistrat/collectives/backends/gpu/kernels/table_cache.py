"""Keep the tables of the latest launches: training loops work on the same memory in each step.

A table depends on addresses and sizes only. One that travels in the arguments of a launch is
bytes of the host. One that was copied to a GPU is used again only by the thread, on the stream,
on which it was copied: its memory goes back to that stream's, behind all that has read it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from mpistrat.collectives.backends.gpu.kernels.tables import (
    NUM_INLINE,
    filled,
    table_dtype,
    uploaded,
)
from mpistrat.types import Array

__all__ = ["Layout", "Table", "addresses", "column", "table_for"]

_MOST_NBYTES = 2**17  # of the pieces of a table that is kept on a GPU: 4 MiB in all

_ADDRESS = attrgetter("data.ptr")


@dataclass(frozen=True, eq=False)
class Layout:
    """What kernels expect of a table.

    Attributes
    ----------
    piece
        Dtype of a piece.
    chunk
        How many units are in a chunk.
    sizes
        Returns how many units are in each of some pieces.
    """

    piece: np.dtype[Any]
    chunk: int
    sizes: Callable[[Array], Array]


class Table(NamedTuple):
    """A table for a launch.

    Attributes
    ----------
    content
        Its bytes, for the arguments of the launch.
    chunks
        How many it has.
    copy
        What has to live until the launch; None if all is in the content.
    """

    content: bytes
    chunks: int
    copy: Any


def addresses(arrays: Iterable[Any]) -> Array:
    """Return where the memory of each array of CuPy begins."""
    return column(map(_ADDRESS, arrays))


def column(numbers: Iterable[int]) -> Array:
    """Return numbers as a field of pieces has them."""
    return np.fromiter(numbers, np.uint64)


def table_for(layout: Layout, pieces: Array) -> Table:
    """Return the table of some pieces, for a launch on the current stream. **Local.**

    Parameters
    ----------
    layout
        One object for all calls from one place: tables are looked up by it.
    pieces
        Of the layout's dtype.
    """
    content = pieces.tobytes()
    if len(pieces) <= NUM_INLINE:
        return _inline(layout, content)
    if len(content) > _MOST_NBYTES:
        return _made(layout, content, uploaded)
    table = _on_gpu(layout, content, _place())
    table.copy.wait()
    return table


def _place() -> tuple[int, int, int]:
    """Return the current device and stream, and the thread: there is a default stream of each."""
    import cupy

    cuda = cupy.cuda
    return cuda.runtime.getDevice(), cuda.get_current_stream().ptr, threading.get_ident()


@lru_cache(maxsize=256)
def _inline(layout: Layout, content: bytes) -> Table:
    return _made(layout, content, uploaded)


@lru_cache(maxsize=32)
def _on_gpu(layout: Layout, content: bytes, _where: tuple[int, int, int]) -> Table:
    table = _made(layout, content, _uploaded_apart)
    return table._replace(copy=_Copy(table.copy))


def _made(layout: Layout, content: bytes, upload: Callable[[bytes], tuple[int, Any]]) -> Table:
    pieces = np.frombuffer(content, layout.piece)
    table = np.zeros((), table_dtype(layout.piece))
    chunks, memory = filled(table, pieces, layout.sizes(pieces), layout.chunk, upload)
    return Table(table.tobytes(), chunks, memory)


def _uploaded_apart(content: bytes) -> tuple[int, Any]:
    """Copy bytes to a GPU, outside of CuPy's pool: a table would keep a whole block there."""
    import cupy

    try:
        with cupy.cuda.using_allocator(_pool().malloc):
            return uploaded(content)
    except cupy.cuda.memory.OutOfMemoryError:
        return uploaded(content)  # the other pool gives blocks back that it does not need


@cache
def _pool() -> Any:
    import cupy

    return cupy.cuda.MemoryPool()


class _Copy:
    """Memory of a GPU that has been written on the current stream.

    A later stream may have the address of a stream that was destroyed. So even the same address
    does not tell that the copy is done.
    """

    def __init__(self, memory: Any) -> None:
        import cupy

        self._memory, self._is_new = memory, True
        self._copied: Any = cupy.cuda.Event(disable_timing=True)
        self._copied.record()

    def wait(self) -> None:
        """Let the current stream wait for the copy, unless it is known to be done.

        The first launch is the one that the copy was made for, on the same stream.
        """
        copied, is_new, self._is_new = self._copied, self._is_new, False
        if copied is None or is_new:
            return
        if copied.done:
            self._copied = None
        else:
            import cupy

            cupy.cuda.get_current_stream().wait_event(copied)
