"""Concatenate the values of this rank's replicas before the ranks are gathered."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.collectives.arrays.conversion import as_array, check_axis
from mpistrat.errors import UsageError
from mpistrat.strategy.values import DistributedValues
from mpistrat.types import Array

__all__ = ["gather_local"]


def gather_local(value: Any, axis: int) -> tuple[Array, int]:
    """Return (the local values concatenated, `axis`), after checking both.

    Raises
    ------
    UsageError
        A value has no dimensions; `axis` is not in [0, rank); values differ in dtype, number of
        dimensions or a length other than that of `axis`.
    """
    values = value.values if isinstance(value, DistributedValues) else (value,)
    arrays = [as_array(one) for one in values]
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
        return np.array(arrays[0]), checked
    return np.concatenate(arrays, axis=checked), checked
