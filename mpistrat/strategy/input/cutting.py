"""Cut global batches into one piece for each replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpistrat.errors import UsageError
from mpistrat.strategy.input.array_spec import ArraySpec
from mpistrat.strategy.nest import flatten, map_nest
from mpistrat.tables.even_cut import piece_bounds
from mpistrat.types import Nest

__all__ = ["cut", "empty_like", "empty_of", "has_rows"]


def cut(element: Nest, pieces: int, first: int = 0, count: int | None = None) -> list[Nest]:
    """Cut the rows of an element into `pieces`, and return `count` of them from `first` on.

    Parameters
    ----------
    element
        A nest of arrays with one length along axis 0. A None in it goes into every piece.
    pieces, first, count
        How many pieces to cut, and which of them to make (all if `count` is None).

    Returns
    -------
    list
        Nests of views, one a piece; those that get no rows hold arrays of length 0.

    Raises
    ------
    UsageError
        A leaf has no axis 0, or the leaves have different lengths. It is a ValueError.
    """
    leaves, structure = flatten(element)
    rows = _row_count(leaves, pieces)
    wanted = range(first, pieces if count is None else first + count)
    return [
        structure.unflatten(_slice(leaves, *piece_bounds(rows, pieces, index))) for index in wanted
    ]


def _slice(leaves: Sequence[Any], start: int, stop: int) -> list[Any]:
    return [None if leaf is None else leaf[start:stop] for leaf in leaves]


def _row_count(leaves: Sequence[Any], pieces: int) -> int:
    arrays = [leaf for leaf in leaves if leaf is not None]
    if not arrays or any(not np.ndim(leaf) for leaf in arrays):
        what = "a value without axis 0" if arrays else "no array"
        raise UsageError(
            f"a distributed data set has an element with {what}, which cannot be cut for {pieces}"
            " replicas; expected batches: call .batch(global_batch_size) on the data set first"
        )
    lengths = [len(leaf) for leaf in arrays]
    if len(set(lengths)) > 1:
        raise UsageError(
            f"a distributed data set has an element whose arrays have {lengths} rows; expected one"
            f" length along axis 0, so that they can be cut alike for {pieces} replicas"
        )
    return lengths[0]


def has_rows(element_or_spec: Nest) -> bool:
    """Tell whether every array in a nest of arrays or specs has an axis 0."""
    leaves, _ = flatten(element_or_spec)
    return all(leaf is None or _dimensions(leaf) > 0 for leaf in leaves)


def _dimensions(leaf: Any) -> int:
    return len(leaf.shape or ()) if isinstance(leaf, ArraySpec) else np.ndim(leaf)


def empty_like(element: Nest) -> Nest:
    """Return the element without its rows: arrays of length 0 of the same kind."""
    return map_nest(lambda leaf: None if leaf is None else leaf[:0], element)


def empty_of(spec: Nest) -> Nest:
    """Return arrays of length 0 for a nest of specs; open dimensions get length 0 too."""

    def make(leaf: ArraySpec | None) -> Any:
        if leaf is None:
            return None
        rest = (leaf.shape or ())[1:]
        return np.empty((0, *(n or 0 for n in rest)), leaf.dtype)

    return map_nest(make, spec)
