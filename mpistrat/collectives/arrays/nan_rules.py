"""Make NaN win in minima and maxima, as in NumPy, over backends where it may not.

MPI leaves open what the minimum of NaN and a number is, and its libraries answer differently even
within one array. So ranks say in their gate lines whether they hold any NaN, and only if one does,
where it is goes round in a second reduction.
"""

from __future__ import annotations

import numpy as np

from mpistrat.collectives.checking.gate import Gate
from mpistrat.tables.reductions import Carried
from mpistrat.types import Array

__all__ = ["flag", "mask", "put_back"]


def flag(how: Carried, *arrays: Array) -> int:
    """Return 1 if a NaN that one of `arrays` holds could be lost, else 0; for the gate line."""
    if not how.watches_nan:
        return 0
    return int(any(a.dtype.kind == "f" and np.isnan(a).any() for a in arrays))


def mask(gate: Gate, how: Carried, array: Array) -> Array | None:
    """Return where `array` is NaN if any rank raised the flag in the call just crossed."""
    if not how.watches_nan or array.dtype.kind != "f" or not gate.extras.any():
        return None
    return np.isnan(array)


def put_back(total: Array, where: Array) -> None:
    """Set `total` to NaN where any rank had one."""
    total[where] = np.nan
