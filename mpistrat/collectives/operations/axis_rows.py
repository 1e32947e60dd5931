"""View arrays as rows along an axis, for operations that gather and scatter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpistrat.collectives.arrays.conversion import flat
from mpistrat.types import Array

__all__ = ["from_rows", "row_counts", "row_signature", "to_rows"]


def to_rows(array: Array, axis: int) -> Array:
    """Return the elements with `axis` outermost, flat and contiguous; a view if it can be."""
    return flat(np.moveaxis(array, axis, 0) if axis else array)


def from_rows(elements: Array, length: int, like: Array, axis: int) -> Array:
    """Undo :func:`to_rows` for an array shaped like `like` but of `length` along `axis`."""
    rest = row_signature(like.shape, axis)
    rows = elements.reshape((length, *rest))
    if not axis:
        return rows
    moved = np.moveaxis(rows, 0, axis)
    return np.ascontiguousarray(moved) if isinstance(moved, np.ndarray) else moved.copy()


def row_signature(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return the part of `shape` that must agree when lengths along `axis` may differ."""
    return shape[:axis] + shape[axis + 1 :]


def row_counts(lengths: Sequence[int], shape: tuple[int, ...], axis: int) -> list[int]:
    """Return the number of elements in blocks of `lengths` rows each."""
    width = int(np.prod(row_signature(shape, axis), dtype=np.int64))
    return [int(n) * width for n in lengths]
