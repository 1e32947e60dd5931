"""Check scatter_add: rows that come many times, in the order of their positions."""

from __future__ import annotations

import numpy as np

from helpers.gpu_kernels.arrays import at_offset, dtype_of, random_values, same_bits
from helpers.gpu_kernels.instances import DTYPES
from helpers.gpu_kernels.library import Library, check
from mpistrat.collectives.backends.gpu.kernels.rows import SCATTER_ADD, ordered_keys
from mpistrat.collectives.backends.gpu.kernels.source import instance_name, type_name
from mpistrat.tables.reduction_ops import widen
from mpistrat.types import Array

__all__ = ["check_rows"]


def _expected(table: Array, indices: Array, values: Array) -> Array:
    """Return the sum, row by row in order; half types as float32, rounded once."""
    if table.dtype.kind == "b":
        table, values = table.view(np.uint8) != 0, values.view(np.uint8) != 0
    total = table.copy() if table.dtype.itemsize > 2 else np.array(widen("sum", table))
    with np.errstate(all="ignore"):
        for index, row in zip(indices, values, strict=True):
            total[index] = total[index] + row.astype(total.dtype)
        # Rows without additions are not touched.
        untouched = np.setdiff1d(np.arange(len(table)), indices)
        done = total.astype(table.dtype)
    done[untouched] = table[untouched]
    return done


def _call(table: Array, values: Array, keys: Array, shift: int, columns: int) -> Array:
    call = np.zeros((), SCATTER_ADD)
    for name, array in (("table", table), ("values", values), ("keys", keys)):
        call[name] = array.ctypes.data
    call["count"], call["shift"], call["columns"] = len(keys), shift, columns
    return call


def check_bad_indices(library: Library, *, are_all: bool) -> None:
    """Add nothing where an index is no row, whatever the keys are; all where none is."""
    del are_all
    dtype = dtype_of("float32")
    for bad in (np.zeros(1, np.uint32), np.ones(1, np.uint32)):
        table, values = at_offset(np.zeros(8, dtype), 0), at_offset(np.ones(12, dtype), 0)
        last = 1000 if bad[0] else 1
        keys = at_offset(np.array([0 << 2 | 1, 0 << 2 | 2, last << 2 | 0], np.uint64), 0)
        call = _call(table, values, keys, 2, 4)
        call["bad"] = bad.ctypes.data
        library.run(instance_name("scatter_add", type_name(dtype)), 3, 64, call)
        want = [0.0] * 8 if bad[0] else [2.0] * 4 + [1.0] * 4
        check(table.tolist() == want, f"bad is {bad[0]}: {table}")


def check_rows(library: Library, *, are_all: bool) -> None:
    """Add to tables of each dtype and several widths."""
    generator = np.random.default_rng(7)
    for name in DTYPES:
        dtype = dtype_of(name)
        for columns, offset in (
            ((1, 0), (5, 0), (64, 0), (16, 1)) if are_all else ((5, 1), (16, 0))
        ):
            num_rows, num_added = 37, 120
            shift = offset * dtype.itemsize % 16
            table = at_offset(random_values(generator, dtype, num_rows * columns), shift)
            values = at_offset(random_values(generator, dtype, num_added * columns), shift)
            indices = generator.integers(0, num_rows, num_added) ** 2 // num_rows
            shaped = (table.reshape(num_rows, columns), values.reshape(num_added, columns))
            want = _expected(shaped[0].copy(), indices, shaped[1])
            untouched = np.setdiff1d(np.arange(num_rows), indices)
            keys, bits = ordered_keys(indices, num_rows)
            call = _call(table, values, at_offset(keys, 0), bits, columns)
            library.run(instance_name("scatter_add", type_name(dtype)), 3, 64, call)
            if dtype.kind == "b":
                kept = np.delete(shaped[0], untouched, 0), np.delete(want, untouched, 0)
                check(same_bits(*kept), f"{name}, {columns} columns")
            else:
                check(same_bits(shaped[0], want), f"{name}, {columns} columns")
