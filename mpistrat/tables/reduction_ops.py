"""Reduction ops: their names, their dtypes, and how half types are widened to float32.

On bool, ``sum`` and ``max`` are the logical or, ``prod`` and ``min`` the logical and, as NumPy's
``+`` and ``*`` are. ``mean`` is a sum divided by the number of ranks; of integers and bool it is
float64 (as TensorFlow's is), summed as float64 so that it cannot overflow.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.types import Array

__all__ = [
    "DTYPES",
    "OPS",
    "Carried",
    "carried",
    "check_op",
    "combine",
    "narrow",
    "result_dtype",
    "widen",
    "widened",
]

_UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
OPS = (*_UFUNCS, "mean")
_OTHER_NAMES = {  # of ReduceOp, NumPy's functions, MPI, and other libraries
    "add": "sum",
    "multiply": "prod",
    "product": "prod",
    "minimum": "min",
    "maximum": "max",
    "average": "mean",
    "avg": "mean",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "band": "and",
    "bor": "or",
    "bxor": "xor",
}

DTYPES = frozenset(
    (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64", "complex64", "complex128"),
    )
)
"""Names of the dtypes that backends reduce; the half types arrive as float32."""

_KINDS = {"min": "biuf", "max": "biuf", "and": "biu", "or": "biu", "xor": "biu"}


def check_op(op: str, dtype: np.dtype[Any]) -> None:
    """Raise if `op` is no reduction, or has no meaning for `dtype`."""
    if not isinstance(op, str):
        raise ArgumentTypeError(
            f"op={op!r} is a {type(op).__name__}; expected one of {OPS}{_meant(_name_of(op))}"
        )
    _check_op(op, dtype)


def _meant(name: str) -> str:
    found = _OTHER_NAMES.get(name.lower(), name.lower())
    return f"; here it is {found!r}" if found in OPS else ""


def _name_of(op: object) -> str:
    """Return the name of an op of TensorFlow, NumPy or MPI, or an empty text."""
    if type(op).__module__ == "mpi4py.MPI":
        names = [name.upper() for name in (*OPS, *_OTHER_NAMES)]
        mpi = sys.modules["mpi4py.MPI"]
        return next((name for name in names if getattr(mpi, name, None) == op), "")
    return str(getattr(op, "name", getattr(op, "__name__", "")))


@lru_cache(maxsize=256)
def _check_op(op: str, dtype: np.dtype[Any]) -> None:
    if op not in OPS:
        names = ", ".join(OPS)
        raise UsageError(f"op={op!r} is not a reduction; expected one of {names}{_meant(op)}")
    kind = "f" if dtype.name == "bfloat16" else dtype.kind
    if kind not in _KINDS.get(op, "biufc"):
        raise UsageError(
            f"reduction {op!r} has no meaning for dtype {dtype}; expected"
            f" {'integers or bool' if op in ('and', 'or', 'xor') else 'real numbers'}"
        )


@lru_cache(maxsize=256)
def result_dtype(op: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the result of `op` on arrays of `dtype`."""
    return np.dtype(np.float64) if op == "mean" and dtype.kind in "biu" else dtype


@lru_cache(maxsize=256)
def widened(op: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which `op` is accumulated."""
    # By size: bfloat16, which is ml_dtypes's, has the kind V.
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        return np.dtype(np.float32)
    if op == "mean" and dtype.kind in "biu":
        return np.dtype(np.float64)
    if op == "sum" and dtype.kind in "iu" and dtype.itemsize < 4:
        return np.dtype(f"{dtype.kind}4")  # Open MPI saturates sums of 8 and 16 bits (its #8045)
    return dtype


def widen(op: str, array: Array) -> Array:
    """Return `array` in the dtype of the accumulation (itself if that is its own)."""
    return array.astype(widened(op, array.dtype), copy=False)


class Carried(NamedTuple):
    """The op and dtype with which a backend executes a reduction.

    Attributes
    ----------
    watches_nan
        Whether the caller of the backend must propagate NaN.
    """

    op: str
    dtype: np.dtype[Any]
    watches_nan: bool


@lru_cache(maxsize=256)
def carried(op: str, dtype: np.dtype[Any], is_exact: bool) -> Carried:
    """Return the op and dtype for a backend that is exact (NaN, half types, mean), or is not."""
    base = "sum" if op == "mean" else op
    if not is_exact:
        return Carried(base, widened(op, dtype), op in ("min", "max"))
    if op == "mean" and dtype.kind in "biuc":  # NumPy divides complex numbers in its own way
        return Carried("sum", widened(op, dtype), False)
    return Carried(op, dtype, False)


def narrow(
    op: str, total: Array, dtype: np.dtype[Any], size: int, how: Carried | None = None
) -> Array:
    """Finish a reduction of `size` ranks: divide for a mean, round a half type once.

    A backend that executed it with `how` may have done both already.
    """
    if op == "mean" and (how is None or how.op != "mean"):
        total = np.divide(total, size, out=total)
    elif op in ("min", "max") and total.dtype.kind == "f" and (how is None or how.watches_nan):
        # -0.0 and 0.0 are equal, and MPI may give ranks either: adding 0.0 makes both 0.0.
        total = np.add(total, 0.0, out=total)
    return total if total.dtype == dtype else total.astype(dtype)


def combine(op: str, rows: Sequence[Array] | Array) -> Array:
    """Reduce `rows`, arrays alike, in their order and dtype; return a new array in C order."""
    first, *others = rows
    total = np.empty(first.shape, first.dtype)
    if not others:
        total[...] = first
    # Not ufunc.reduce, which begins with a zero and so loses its sign.
    for index, row in enumerate(others):
        _UFUNCS[op](total if index else first, row, out=total)
    return total
