"""Inputs that each rank can compute for every rank, and the results expected of collectives.

The numbers are small whole ones, so that sums and products of a few ranks are exact in every
dtype, half types too: results are compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mpistrat.types import Array

__all__ = [
    "DTYPES",
    "DTYPES_BY_SIZE",
    "SHAPES",
    "assert_same",
    "expected_reduction",
    "get_dtype",
    "ops_for",
    "rows_of",
    "sample",
]

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)

DTYPES_BY_SIZE = ("bool", "bfloat16", "float32", "int64", "complex128")
"""One dtype of each size, and of each kind."""

SHAPES: tuple[tuple[int, ...], ...] = (
    *((), (0,), (1,), (3,), (2, 0, 3), (4, 3), (1, 1, 1)),
    *((193,), (11, 7, 5)),  # more than what rides in a header, in every dtype
)

_LOGICAL: dict[str, Any] = {
    **dict.fromkeys(("sum", "max", "or"), np.logical_or),
    **dict.fromkeys(("prod", "min", "and"), np.logical_and),
    "xor": np.logical_xor,
}
_NUMERIC: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def get_dtype(name: str) -> np.dtype[Any]:
    """Return a dtype by name, bfloat16 too."""
    if name == "bfloat16":
        import ml_dtypes

        half: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return half
    return np.dtype(name)


def ops_for(name: str) -> tuple[str, ...]:
    """Return the reductions that have a meaning for a dtype."""
    if name.startswith("complex"):
        return ("sum", "prod", "mean")
    bitwise = () if "float" in name else ("and", "or", "xor")
    return ("sum", "prod", "min", "max", "mean", *bitwise)


def sample(name: str, shape: Sequence[int], rank: int) -> Array:
    """Return a rank's array: whole numbers from -3 to 4, or 0 to 4 without a sign."""
    dtype = get_dtype(name)
    count = int(np.prod(shape, dtype=np.int64))
    numbers = (np.arange(count) * 5 + rank * 3) % 8 - 3
    if name == "bool":
        return (numbers > rank % 2).reshape(shape)
    if dtype.kind == "u":
        numbers = np.abs(numbers)
    if dtype.kind == "c":
        return (numbers - 1j * np.roll(numbers, 1)).astype(dtype).reshape(shape)
    return numbers.astype(dtype).reshape(shape)


def expected_reduction(op: str, arrays: Sequence[Array]) -> Array:
    """Return what `op` makes of the arrays of all ranks, computed in double precision."""
    dtype = arrays[0].dtype
    if op == "mean":
        return _mean(arrays)
    if dtype == np.bool_:
        return np.asarray(_LOGICAL[op].reduce(np.stack(arrays), axis=0))
    if dtype.kind in "iu":
        return np.asarray(_NUMERIC[op].reduce(np.stack(arrays), axis=0, dtype=dtype))
    wide = np.complex128 if dtype.kind == "c" else np.float64
    total = _NUMERIC[op].reduce(np.stack([array.astype(wide) for array in arrays]), axis=0)
    return np.asarray(total).astype(dtype)


def _mean(arrays: Sequence[Array]) -> Array:
    """Sum exactly, divide once in the precision of the accumulation, round once."""
    dtype = arrays[0].dtype
    wide = np.complex128 if dtype.kind == "c" else np.float64
    total = np.sum([array.astype(wide) for array in arrays], axis=0)
    if dtype.kind in "biu":
        return np.asarray(total / len(arrays))
    # Halves are summed and divided in single precision, and rounded once.
    held = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    return np.asarray(np.asarray(total).astype(held) / len(arrays)).astype(dtype)


def rows_of(array: Array, lengths: Sequence[int], axis: int) -> Iterator[Array]:
    """Cut `array` along `axis` into blocks of the given lengths."""
    start = 0
    for length in lengths:
        yield np.take(array, range(start, start + length), axis=axis)
        start += length


def assert_same(got: Any, want: Array, what: str) -> None:
    """Assert equal type, dtype, shape and bits."""
    assert type(got) is np.ndarray, f"{what}: got a {type(got).__name__}, expected an ndarray"
    assert got.dtype == want.dtype, f"{what}: got dtype {got.dtype}, expected {want.dtype}"
    assert got.shape == want.shape, f"{what}: got shape {got.shape}, expected {want.shape}"
    np.testing.assert_array_equal(got, want, err_msg=what, strict=True)
