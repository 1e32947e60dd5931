"""Reduce over one rank: the result is a copy of what the rank brings."""

from __future__ import annotations

import numpy as np

from mpistrat.collectives.arrays.results import new_result
from mpistrat.tables.reduction_ops import narrow, result_dtype, widened
from mpistrat.types import Array

__all__ = ["reduced_alone"]

_CHANGED = ("mean", "min", "max")  # they divide, or turn -0.0 into 0.0, which needs a copy first


def reduced_alone(source: Array, op: str, out: Array | None) -> Array:
    """Return the reduction of one array of the host: `out`, or a new array."""
    dtype = result_dtype(op, source.dtype)
    if out is not None and dtype == source.dtype and op not in _CHANGED:
        if not _is_same(source, out):
            out[...] = source
        return out
    total = new_result(source.shape, widened(op, source.dtype))
    total[...] = source
    total = np.asarray(narrow(op, total, dtype, 1))
    if out is None:
        return total
    out[...] = total
    return out


def _is_same(one: Array, other: Array) -> bool:
    return one.ctypes.data == other.ctypes.data and one.strides == other.strides
