"""`embedding_lookup`: rows of a table, however it is divided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.errors import UsageError
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.scatter import Scattered
from mpistrat.tables.row_ranges import RowRanges, joined
from mpistrat.tables.rows import taken
from mpistrat.types import Array, ArrayLike

__all__ = ["embedding_lookup"]


def embedding_lookup(params: Any, ids: ArrayLike, max_norm: float | None = None) -> Array:
    """Return the rows of a table that `ids` names.

    Parameters
    ----------
    params
        The table: a `ShardedVariable`, of which each part is asked for its own rows only, a
        variable, an array, or a list of variables or arrays that are its rows one after the other.
    ids
        Whole numbers of any shape [...].
    max_norm
        Longer rows are scaled down to this length (their 2-norm).

    Returns
    -------
    Array
        A copy, of shape [..., and that of a row].

    Raises
    ------
    UsageError
        An id is no row, or `params` is empty.

    References
    ----------
    tf.nn.embedding_lookup; a list is divided by "div" there too.
    """
    is_list = isinstance(params, (list, tuple))
    table = params if isinstance(params, Scattered) else _Table(params if is_list else [params])
    rows = table.sparse_read(ids)
    return rows if max_norm is None else _clipped(rows, np.ndim(ids), max_norm)


class _Table(Scattered):
    """Variables or arrays that are the rows of a table."""

    name = "params"

    def __init__(self, parts: Sequence[Any]) -> None:
        are_variables = len(parts) > 0 and all(isinstance(one, Variable) for one in parts)
        self._parts = list(parts) if are_variables else [as_array(one) for one in parts]
        self._rows_of = type(parts[0]).rows_of_parts if are_variables else _array_rows
        shapes = [one.shape for one in self._parts]
        if not shapes or not all(shapes) or len({shape[1:] for shape in shapes}) > 1:
            raise UsageError(
                f"embedding_lookup in parts of shapes {shapes}; expected at least one, with an"
                " axis 0, and alike but for it"
            )
        dtypes = [one.dtype.name for one in self._parts]
        if len(set(dtypes)) > 1:
            raise UsageError(f"embedding_lookup in parts of dtypes {dtypes}; expected one dtype")
        self._ranges = RowRanges([shape[0] for shape in shapes])
        self.shape = (self._ranges.count, *shapes[0][1:])

    def _rows(self, rows: Array) -> Array:
        found: Array = self._rows_of(self._parts, self._ranges, rows)
        return found


def _array_rows(arrays: Sequence[Array], ranges: RowRanges, rows: Array) -> Array:
    routes = ranges.route(rows)
    pieces = [taken(one, route.rows) for one, route in zip(arrays, routes, strict=True)]
    return joined(routes, pieces, (rows.size, *arrays[0].shape[1:]))


def _clipped(rows: Array, id_axes: int, max_norm: float) -> Array:
    axes = tuple(range(id_axes, rows.ndim))
    # The square of a float16 number from 256 on is infinite.
    wide = rows.astype(np.result_type(rows.dtype, np.float32), copy=False)
    norms = np.sqrt(np.sum(np.abs(wide) ** 2, axis=axes, keepdims=True))
    # Rows that are short enough are multiplied by 1, also those of zeros.
    scaled: Array = wide * (max_norm / np.maximum(norms, max_norm))
    return scaled.astype(rows.dtype, copy=False)
