"""Sort row numbers, and tell where each of them was."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.types import Array

__all__ = ["in_order", "write_order"]

_FEW = 500  # indices: below, fewer calls of NumPy save more than the faster sort


def in_order(indices: Array) -> tuple[Array, Array]:
    """Return indices in ascending order, and their positions; equal ones keep their order.

    Parameters
    ----------
    indices
        Whole numbers of shape [n].

    Returns
    -------
    tuple
        New arrays of shape [n]: the indices, of their dtype, and the positions, int64.
    """
    if len(indices) < _FEW or indices.min() < 0:
        order = indices.argsort(kind="stable")
        return indices[order], order
    ordered, positions = np.empty((2, len(indices)), np.uint64)
    write_order(indices, int(indices.max()) + 1, ordered, positions)
    return ordered.astype(indices.dtype), positions.view(np.int64)


def write_order(indices: Array, num_rows: int, ordered: Array, positions: Array) -> None:
    """Write the indices in ascending order and their positions; equal ones keep their order.

    Parameters
    ----------
    indices
        Whole numbers from 0 to `num_rows` - 1, of shape [n].
    ordered, positions
        Memory for both, uint64 of shape [n].
    """
    count = len(indices)
    bits = (num_rows - 1).bit_length() + (count - 1).bit_length()
    if count < _FEW or bits > 64:
        order = indices.argsort(kind="stable")
        ordered[:], positions[:] = indices[order], order
    elif (indices[1:] >= indices[:-1]).all():  # as `IndexedSlices.summed` returns them
        ordered[:], positions[:] = indices, np.arange(count)
    else:
        _sort_keys(indices, np.uint32 if bits <= 32 else np.uint64, ordered, positions)


def _sort_keys(
    indices: Array, dtype: type[np.unsignedinteger[Any]], ordered: Array, positions: Array
) -> None:
    """Sort by numbers of `dtype` that have the index above the position.

    NumPy sorts numbers by vector instructions, ten times faster than it finds a stable order.
    """
    shift = (len(indices) - 1).bit_length()
    keys = positions if dtype == positions.dtype else np.empty(len(indices), dtype)
    keys[:] = indices
    keys <<= shift
    keys |= np.arange(len(indices), dtype=dtype)
    keys.sort()
    np.right_shift(keys, shift, out=ordered)
    np.bitwise_and(keys, (1 << shift) - 1, out=positions)
