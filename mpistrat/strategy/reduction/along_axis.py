"""Sum each replica's value along axes before the replicas are combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpistrat.collectives.arrays.conversion import check_axis
from mpistrat.errors import UsageError
from mpistrat.strategy.values import DistributedValues
from mpistrat.tables.reduction_ops import widened
from mpistrat.types import Array

__all__ = ["reduce_along", "summed_as"]


def reduce_along(
    arrays: Sequence[Array], axis: int | Sequence[int], op: str
) -> tuple[DistributedValues, DistributedValues]:
    """Return (sums along `axis`, numbers of elements summed) of the replicas' arrays.

    Sums are in the dtype in which `op` ("sum" or "mean") accumulates: half types in float32,
    integers and bool for a mean in float64, bool for a sum in int64: how many are true.

    Lengths along `axis` may differ between replicas, so that a mean has the true divisor.
    """
    axes = _axes(axis, arrays[0].ndim)
    if any(array.ndim != arrays[0].ndim for array in arrays):
        dims = [array.ndim for array in arrays]
        raise UsageError(f"reduce: the replicas' values have {dims} dimensions; expected equal")
    sums = [_sum(array, axes, op) for array in arrays]
    counts = [
        np.array(np.prod([array.shape[a] for a in axes], dtype=np.int64)) for array in arrays
    ]
    return DistributedValues(sums), DistributedValues(counts)


def _axes(axis: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    many = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(check_axis(one, ndim, "reduce") for one in many)
    if len(set(axes)) != len(axes):
        raise UsageError(f"reduce: axis={axis} names a dimension twice")
    return axes


def summed_as(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a sum along axes: bools are counted, as NumPy's sum does."""
    return np.dtype(np.int64) if dtype.kind == "b" else dtype


def _sum(array: Array, axes: tuple[int, ...], op: str) -> Array:
    dtype = widened(op, summed_as(array.dtype) if op == "sum" else array.dtype)
    if not isinstance(array, np.ndarray):  # CuPy's, which takes no ufunc's methods
        found: Array = array.sum(axis=axes, dtype=dtype)
        return found
    return np.asarray(np.add.reduce(array, axis=axes, dtype=dtype))
