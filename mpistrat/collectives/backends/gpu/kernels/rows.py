"""Add rows to rows of a table on a GPU, in the same order in every run."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from mpistrat.collectives.backends.gpu.kernels import row_order, source
from mpistrat.collectives.backends.gpu.kernels.launch import (
    THREADS,
    blocks_for,
    current_device,
    kernel,
    launch,
)
from mpistrat.collectives.backends.gpu.kernels.row_order import Ordered
from mpistrat.errors import UsageError
from mpistrat.types import Array

__all__ = ["SCATTER_ADD", "add_ordered", "ordered_keys", "scatter_add"]

SCATTER_ADD = np.dtype(
    [
        *((name, np.uint64) for name in ("table", "values", "keys", "bad", "count", "columns")),
        ("shift", np.uint32),
        ("padding", np.uint32),
    ]
)
"""``ScatterAdd`` of scatter_add.cu."""

_MAX_ORDERED_BY_HOST = 1024
"""Indices of the host, up to which it orders them itself: in 17 us, which one launch more and its
work on the GPU take as well."""

_KEY_BITS = 64


def ordered_keys(indices: Array, num_rows: int) -> tuple[Array, int]:
    """Order positions by their row on the host, those of one row ascending.

    Returns
    -------
    tuple
        The keys, of dtype uint64 and ascending, and how many bits of each are the position; the
        row is above them.

    Raises
    ------
    UsageError
        An index is not a row of the table, or a key has too few bits.
    """
    _check(indices, num_rows)
    shift = _shift(len(indices), num_rows)
    keys = np.empty(len(indices), np.uint64)
    keys[:] = indices
    keys <<= np.uint64(shift)
    keys |= np.arange(len(indices), dtype=np.uint64)
    keys.sort()  # by vector instructions: ten times faster than a stable order is found
    return keys, shift


def scatter_add(table: Any, indices: Any, values: Any, *, are_checked: bool = False) -> None:
    """Add each row of `values` to the row of `table` that its index names. **Local.**

    What goes to one row is added in the order of the positions, as on the host. Launched on the
    current stream, and not waited for. With indices on the GPU it waits until what was queued
    there before is done and they have been looked at; the addition goes on meanwhile.

    A row is added to by one thread for each column. To share out the positions of a row that
    comes very often would give another sum than the host's.

    Parameters
    ----------
    table, values
        Arrays of CuPy of one dtype, in C order, of shapes [rows, ...] and [n, ...].
    indices
        Whole numbers of shape [n], on the host or on the current GPU, where they stay; a row may
        come more than once.
    are_checked
        Those on the GPU are known to be rows: nothing is waited for. (If they change nevertheless,
        as another stream may write to them, nothing is added.)

    Raises
    ------
    UsageError
        An index is not a row of the table, which has not been changed.
    """
    if len(indices) == 0 or values.size == 0:
        return
    # Compiled when it is first used: before anything is queued.
    function = kernel(current_device(), "scatter_add", source.type_name(table.dtype))
    ordered = _ordered(indices, len(table), are_checked=are_checked)
    _add(function, table, ordered, values)
    bad = 0 if ordered.index_check is None else ordered.index_check.read()
    if bad:  # then the kernel has added nothing
        at = len(indices) - bad
        _refuse(indices[at], at, len(table))


def add_ordered(table: Any, ordered: Ordered, values: Any) -> None:
    """Add rows as `scatter_add` does, by keys that are in order. **Local.** Waits for nothing."""
    if values.size:
        function = kernel(current_device(), "scatter_add", source.type_name(table.dtype))
        _add(function, table, ordered, values)


def _add(function: Any, table: Any, ordered: Ordered, values: Any) -> None:
    call = np.zeros((), SCATTER_ADD)
    call["table"], call["values"] = table.data.ptr, values.data.ptr
    call["keys"], call["shift"] = ordered.keys.data.ptr, ordered.shift
    call["bad"] = 0 if ordered.bad is None else ordered.bad.data.ptr
    call["count"], call["columns"] = len(values), values.size // len(values)
    accesses = -(-values.nbytes // 16)
    launch(function, blocks_for(current_device(), -(-accesses // THREADS)), call)


def _ordered(indices: Any, num_rows: int, *, are_checked: bool) -> Ordered:
    """Order positions by their row: where the indices are, unless another place is faster."""
    if isinstance(indices, np.ndarray):
        return _ordered_of_host(indices, num_rows)
    if len(indices) > row_order.MAX_INDICES:
        return _ordered_of_host(indices.get(), num_rows)
    _check_dtype(indices)
    _shift(len(indices), num_rows)
    return row_order.order(indices, num_rows, are_checked=are_checked)


def _ordered_of_host(indices: Array, num_rows: int) -> Ordered:
    """Order few indices on the host, and more than the kernels count; others on the GPU."""
    import cupy

    if _MAX_ORDERED_BY_HOST < len(indices) <= row_order.MAX_INDICES:
        _check(indices, num_rows)
        _shift(len(indices), num_rows)
        return row_order.order(cupy.asarray(indices), num_rows, are_checked=True)
    keys, shift = ordered_keys(indices, num_rows)
    return Ordered(cupy.asarray(keys), shift, None, None)


def _check(indices: Array, num_rows: int) -> None:
    """Raise `UsageError` unless all indices of the host are rows of the table."""
    _check_dtype(indices)
    if len(indices) == 0 or (indices.min() >= 0 and indices.max() < num_rows):
        return
    at = int(np.argmax((indices < 0) | (indices >= num_rows)))
    _refuse(indices[at], at, num_rows)


def _check_dtype(indices: Any) -> None:
    if indices.dtype.kind not in "iu":
        raise UsageError(f"indices of dtype {indices.dtype}; expected whole numbers")


def _refuse(index: Any, at: int, num_rows: int) -> NoReturn:
    raise UsageError(f"index {int(index)} at position {at}; expected 0 to {num_rows - 1}")


def _shift(count: int, num_rows: int) -> int:
    """Return how many bits of a key are the position's."""
    shift, bits = row_order.key_bits(count, num_rows)
    if shift + bits > _KEY_BITS:
        raise UsageError(
            f"{count} rows to be added to a table of {num_rows}: a position and a row have"
            f" {shift + bits} bits together; expected at most {_KEY_BITS}: add fewer in a call"
        )
    return shift
