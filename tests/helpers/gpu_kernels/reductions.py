"""Check slice_reduce: against NumPy in the order of the ranks, at all alignments, in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.gpu_kernels.arrays import at_offset, dtype_of, random_values, same_bits
from helpers.gpu_kernels.instances import reductions
from helpers.gpu_kernels.library import Library, check
from mpistrat.collectives.backends.gpu.kernels.launch import pointers
from mpistrat.collectives.backends.gpu.kernels.reductions import MAX_RANKS, SLICE_REDUCE
from mpistrat.collectives.backends.gpu.kernels.source import instance_name, op_name, type_name
from mpistrat.tables.reduction_ops import combine, narrow, result_dtype, widen
from mpistrat.types import Array

__all__ = ["check_slices", "expected"]

_SIZES = (1, 2, 7, 16, 33, 250, 1031)


def expected(op: str, arrays: list[Array]) -> Array:
    """Return what the CPU side gives for arrays in the order of their ranks."""
    if arrays[0].dtype.kind == "b":
        arrays = [one.view(np.uint8) != 0 for one in arrays]
    with np.errstate(all="ignore"):
        rows = np.stack([widen(op, one) for one in arrays])
        if op == "prod" and rows.dtype.kind == "c":
            total = _product(rows)
        else:
            total = combine("sum" if op == "mean" else op, rows)
        return narrow(op, total, result_dtype(op, arrays[0].dtype), len(arrays))


def _product(rows: Array) -> Array:
    """Return the product by the plain formula, each step rounded: NumPy may fuse some of them."""
    total: Array = rows[0].copy()
    for row in rows[1:]:
        real = total.real * row.real - total.imag * row.imag
        total.imag = total.real * row.imag + total.imag * row.real
        total.real = real
    return total


def check_slices(library: Library, *, are_all: bool) -> None:
    """Reduce slices of arrays of each op and dtype, on 1 to 16 ranks."""
    generator = np.random.default_rng(1)
    pairs = reductions(are_all=are_all)
    for op, name in pairs:
        dtype = dtype_of(name)
        for case in range(40 if are_all else 12):
            ranks = int(generator.choice([1, 2, 3, 5, 16]))
            size = int(generator.choice(_SIZES))
            # The first two cases have packs from the beginning, and at a common place.
            offsets = (
                [0] * (ranks + 2) if case == 0 else [int(generator.integers(16))] * (ranks + 2)
            )
            if case > 1:
                offsets = [int(one) for one in generator.integers(0, 16, ranks + 2)]
            _check_one(library, generator, op, dtype, (ranks, size, offsets, case % 2 == 0))


def _check_one(
    library: Library,
    generator: np.random.Generator,
    op: str,
    dtype: np.dtype[Any],
    case: tuple[int, int, list[int], bool],
) -> None:
    ranks, size, offsets, in_place = case
    arrays = [
        at_offset(random_values(generator, dtype, size), offset * dtype.itemsize % 16)
        for offset in offsets[:ranks]
    ]
    begin = int(generator.integers(0, size))
    end = int(generator.integers(begin, size)) + 1
    result = result_dtype(op, dtype)
    want = expected(op, [one[begin:end].copy() for one in arrays])
    results = [
        at_offset(np.zeros(size, result), offset * result.itemsize % 16)
        for offset in offsets[ranks:]
    ]
    if in_place and result == dtype:
        results = [*arrays, *results][:MAX_RANKS]
    before = [one.copy() for one in results]
    call = np.zeros((), SLICE_REDUCE)
    call["sources"] = pointers([one.ctypes.data for one in arrays], MAX_RANKS)
    call["results"] = pointers([one.ctypes.data for one in results], MAX_RANKS)
    call["num_sources"], call["num_results"] = ranks, len(results)
    call["begin"], call["end"] = begin, end
    kernel = instance_name("slice_reduce", op_name(op), type_name(dtype))
    library.run(kernel, int(generator.integers(1, 4)), 32, call)
    for got, old in zip(results, before, strict=True):
        check(same_bits(got[begin:end], want), f"{op} of {dtype}, {case}")
        check(
            got[:begin].tobytes() == old[:begin].tobytes()
            and got[end:].tobytes() == old[end:].tobytes(),
            f"{op} of {dtype}, {case}: written outside of the slice {begin} to {end}",
        )
