"""Read, replace and add to rows of a private array, by the kernels or by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.errors import MpistratError, UsageError
from mpistrat.system.kernels import kernels, why_no_kernels
from mpistrat.tables.reduction_ops import widened
from mpistrat.types import Array

__all__ = [
    "DONE",
    "add_rows",
    "check_result",
    "first_wrong",
    "put_rows",
    "replace",
    "take_rows",
    "taken",
]

DONE = -1
"""Returned by the kernels on success; else they return the position of a wrong index."""

_NO_MEMORY, _CHANGED = -2, -6


def take_rows(table: Array, rows: Array, out: Array) -> int:
    """Copy rows of a table into a new array.

    Parameters
    ----------
    table
        In C order, with at least one dimension.
    rows
        Indices of shape [n], int64.
    out
        Shape [n, ...], the table's dtype, in C order.

    Returns
    -------
    int
        `DONE`, or the position of the first index that is no row; nothing was done then.
    """
    if why_no_kernels() is None:
        return int(kernels().take_rows(table, rows, out))
    wrong = first_wrong(rows, len(table))
    if wrong == DONE:
        # The indices are checked; with mode="raise" NumPy would write into a copy of `out` first.
        np.take(table, rows, axis=0, out=out, mode="clip")
    return wrong


def taken(table: Array, rows: Array) -> Array:
    """Return a copy of rows at valid indices of a table in any memory order.

    A table on a GPU has its rows, and their indices, there.
    """
    if not isinstance(table, np.ndarray):
        return table[rows]
    result = np.empty((rows.size, *table.shape[1:]), table.dtype)
    table, rows = np.ascontiguousarray(table), np.ascontiguousarray(rows, np.int64)
    check_result(take_rows(table, rows, result), "rows of an array")
    return result


def replace(table: Array, rows: Array, values: Array) -> None:
    """Replace rows at valid indices of a table in any memory order, or on a GPU."""
    if not isinstance(table, np.ndarray) or not table.flags.c_contiguous:
        table[rows] = values
        return
    rows, values = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(values, table.dtype)
    check_result(put_rows(table, rows, values), "rows of an array")


def put_rows(table: Array, rows: Array, values: Array) -> int:
    """Replace rows; of a repeated index the last one counts. Arguments as for `take_rows`."""
    if why_no_kernels() is None:
        return int(kernels().put_rows(table, rows, values))
    wrong = first_wrong(rows, len(table))
    if wrong == DONE:
        table[rows] = values
    return wrong


def add_rows(table: Array, rows: Array, values: Array) -> int:
    """Add to rows; a repeated index adds repeatedly. Arguments as for `take_rows`.

    Half types are accumulated as float32 and rounded once.
    """
    if why_no_kernels() is None:
        native = kernels()
        return int(native.add_rows(table, rows, values, native.dtype_of(table)))
    wrong = first_wrong(rows, len(table))
    if wrong == DONE:
        _add(table, rows, values, widened("sum", table.dtype))
    return wrong


def _add(table: Array, rows: Array, values: Array, dtype: np.dtype[Any]) -> None:
    if dtype == table.dtype or table.dtype.kind not in "fV":  # V: bfloat16
        np.add.at(table, rows, values)
        return
    # `np.add.at` on a half type would round after each addition.
    once, places = np.unique(rows, return_inverse=True)
    sums = table[once].astype(dtype)
    np.add.at(sums, places, values.astype(dtype))
    table[once] = sums.astype(table.dtype)


def first_wrong(rows: Array, num_rows: int) -> int:
    """Return the position of the first index that is out of range, or `DONE`."""
    wrong = np.flatnonzero((rows < 0) | (rows >= num_rows))
    return int(wrong[0]) if wrong.size else DONE


def check_result(result: int, what: str) -> None:
    """Raise if a kernel failed although its indices were checked before."""
    if result == _NO_MEMORY:
        raise MpistratError(f"{what}: no memory to sort the rows; nothing was changed")
    if result == _CHANGED or result > DONE:
        raise UsageError(
            f"{what}: the indices of rows changed during the call; another thread writes to their"
            " array: hand over a copy"
        )
    if result < DONE:
        raise MpistratError(f"{what}: the kernels refused with {result}; report this")
