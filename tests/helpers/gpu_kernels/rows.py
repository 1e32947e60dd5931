"""Check scatter_add: rows that come many times, in the order of their positions."""

from __future__ import annotations

import numpy as np

from helpers.gpu_kernels.arrays import at_offset, dtype_of, random_values, same_bits
from helpers.gpu_kernels.instances import DTYPES
from helpers.gpu_kernels.library import Library, check
from mpistrat.collectives.backends.gpu.kernels.rows import SCATTER_ADD, grouped
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
            groups = grouped(indices, num_rows)
            call = np.zeros((), SCATTER_ADD)
            call["table"], call["values"] = table.ctypes.data, values.ctypes.data
            for field in ("rows", "starts", "positions"):
                call[field] = getattr(groups, field).ctypes.data
            call["num_groups"], call["columns"] = len(groups.rows), columns
            library.run(instance_name("scatter_add", type_name(dtype)), 3, 64, call)
            if dtype.kind == "b":
                kept = np.delete(shaped[0], untouched, 0), np.delete(want, untouched, 0)
                check(same_bits(*kept), f"{name}, {columns} columns")
            else:
                check(same_bits(shaped[0], want), f"{name}, {columns} columns")
