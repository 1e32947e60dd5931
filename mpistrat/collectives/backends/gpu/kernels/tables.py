"""Tables of pieces of memory that one launch works on: their layout, and their chunks.

A table of a few pieces travels in the arguments of the launch; a larger one is copied to the GPU
first, on the same stream.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mpistrat.types import Array

__all__ = ["NUM_INLINE", "filled", "table_dtype", "uploaded"]

NUM_INLINE = 24


@cache
def table_dtype(piece: np.dtype[Any]) -> np.dtype[Any]:
    """Return the layout of ``Table<Piece>`` in table.cuh."""
    return np.dtype(
        [
            ("pieces", np.uint64),
            ("first_chunk", np.uint64),
            ("num_pieces", np.uint64),
            ("chunk", np.uint64),
            ("few", piece, NUM_INLINE),
            ("first_of_few", np.uint64, NUM_INLINE + 1),
        ]
    )


def uploaded(content: bytes) -> tuple[int, Any]:
    """Copy bytes to the current device; return their address there, and what holds them."""
    import cupy

    memory = cupy.asarray(np.frombuffer(content, np.uint8))
    return int(memory.data.ptr), memory


def filled(
    table: Array,
    pieces: Array,
    sizes: Array,
    chunk: int,
    upload: Callable[[bytes], tuple[int, Any]] = uploaded,
) -> tuple[int, Any]:
    """Fill a table in; return the number of its chunks, and what has to live until the launch.

    Parameters
    ----------
    table
        Of no dimensions, zeros, of a dtype by `table_dtype`; written to.
    pieces
        The pieces, in their dtype.
    sizes
        How many units are in each.
    chunk
        How many units are in a chunk, all but the last of a piece.
    upload
        What copies a large table to the device.
    """
    first = np.zeros(len(pieces) + 1, np.uint64)
    np.cumsum((sizes.astype(np.uint64) + np.uint64(chunk - 1)) // np.uint64(chunk), out=first[1:])
    table["num_pieces"], table["chunk"] = len(pieces), chunk
    if len(pieces) <= NUM_INLINE:
        table["few"][: len(pieces)] = pieces
        table["first_of_few"][: len(first)] = first
        return int(first[-1]), None
    address, memory = upload(pieces.tobytes() + first.tobytes())
    table["pieces"], table["first_chunk"] = address, address + pieces.nbytes
    return int(first[-1]), memory
