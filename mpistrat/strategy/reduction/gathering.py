"""Concatenate the values of this rank's replicas before the ranks are gathered."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.collectives.arrays.conversion import check_axis
from mpistrat.collectives.backends.gpu.memory.local_arrays import concatenated
from mpistrat.errors import UsageError
from mpistrat.strategy.reduction.placement import ReplicaPlacement
from mpistrat.strategy.values import DistributedValues
from mpistrat.types import Array

__all__ = ["gather_local"]


def gather_local(value: Any, axis: int, placement: ReplicaPlacement) -> tuple[Array, int]:
    """Return (the local values concatenated in new memory, `axis`), after checking both.

    They are brought to where this rank combines values, by its `placement`.

    Raises
    ------
    UsageError
        A value has no dimensions; `axis` is not in [0, rank); values differ in dtype, number of
        dimensions or a length other than that of `axis`.
    """
    values = value.values if isinstance(value, DistributedValues) else (value,)
    arrays = [placement.operand(one) for one in values]
    checked = check_axis(axis, arrays[0].ndim, "gather")
    if axis < 0:
        raise UsageError(f"gather: axis={axis}; expected 0 to {arrays[0].ndim - 1}")
    forms = {(a.dtype, a.shape[:axis], a.shape[axis + 1 :]) for a in arrays}
    if len(forms) > 1:
        shown = "; ".join(f"replica {i}: {a.dtype} {a.shape}" for i, a in enumerate(arrays))
        raise UsageError(
            f"gather along axis {axis}: values may differ only in the length of that axis: {shown}"
        )
    if len(arrays) == 1:
        return arrays[0].copy(), checked
    if not isinstance(arrays[0], np.ndarray):
        return concatenated(arrays, checked), checked
    return np.concatenate(arrays, axis=checked), checked
