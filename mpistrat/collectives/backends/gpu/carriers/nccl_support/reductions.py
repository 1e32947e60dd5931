"""Say how NCCL reduces arrays, and which reductions it cannot do exactly."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["Reduction", "reduction_of"]

_OPS = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
_HALVES = ("float16", "bfloat16")
_DTYPES = {
    **{name: name.upper() for name in ("int8", "int32", "int64", "uint8", "uint32", "uint64")},
    **dict.fromkeys((*_HALVES, "float32", "complex64"), "FLOAT32"),
    **dict.fromkeys(("float64", "complex128"), "FLOAT64"),
    "bool": "UINT8",
}
_BOOL_OPS = {"sum": "max", "or": "max", "max": "max", "prod": "min", "and": "min", "min": "min"}


class Reduction:
    """How NCCL is to reduce an array.

    Attributes
    ----------
    op, dtype
        NCCL's numbers for them.
    is_mean
        Whether its sum is to be divided.
    is_widened
        Whether it is to be reduced as float32.
    """

    def __init__(self, op: str, dtype: str) -> None:
        from cupy.cuda import nccl

        self.is_mean, self.is_widened = op == "mean", dtype in _HALVES
        self._numbers = 2 if dtype.startswith("complex") else 1
        base = "sum" if self.is_mean else op
        self.op = getattr(nccl, f"NCCL_{_OPS[base]}")
        self.dtype = getattr(nccl, f"NCCL_{_DTYPES[dtype]}")

    def count(self, array: Any) -> int:
        """Return how many numbers an array has; a complex one has two an element."""
        return int(array.size * self._numbers)


def reduction_of(array: Any, op: str) -> Reduction | None:
    """Return how NCCL reduces arrays like this one with `op`; None if it cannot, exactly."""
    return _reduction(array.dtype, op)


@lru_cache(maxsize=256)
def _reduction(dtype: np.dtype[Any], op: str) -> Reduction | None:
    name, is_sum = dtype.name, op in ("sum", "mean")
    if name == "bool":
        op = _BOOL_OPS.get(op, "")
    elif name.startswith("complex"):
        op = op if is_sum else ""  # a product of complex numbers is not one of their parts
    elif op in ("min", "max") and dtype.kind not in "iu":
        op = ""  # NCCL leaves open what the minimum of NaN and a number is
    if name not in _DTYPES or not (is_sum or op in _OPS):
        return None
    return Reduction(op, name)
