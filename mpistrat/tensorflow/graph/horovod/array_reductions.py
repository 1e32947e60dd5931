"""Say how Horovod reduces arrays of NumPy: in which dtype, and with which of its operations.

Every conversion is exact: what wraps in short or unsigned integers wraps alike in those that
Horovod has. Arrays that no conversion helps are gathered, and combined by each rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mpistrat.types import Array

__all__ = ["Plan", "plan"]

_OPS = {"sum": "Sum", "prod": "Product", "min": "Min", "max": "Max"}
_AS_BYTES = {"sum": "Max", "max": "Max", "or": "Max", "prod": "Min", "min": "Min", "and": "Min"}
_SIGN = np.uint64(1 << 63)

_Change = Callable[[Array], Array]


class Plan(NamedTuple):
    """How arrays of one dtype are reduced.

    Attributes
    ----------
    op
        The name of Horovod's operation.
    there
        Converts an array to what Horovod gets.
    back
        Converts what comes from Horovod.
    """

    op: str
    there: _Change
    back: _Change


def plan(op: str, array: Array) -> Plan | None:
    """Return how `array` is reduced with `op`; None if Horovod cannot reduce it."""
    dtype = array.dtype
    if dtype == np.bool_:
        return _viewed(_AS_BYTES[op], np.uint8, dtype) if op in _AS_BYTES else None
    if op not in _OPS:
        return None
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return _viewed("Sum", part, dtype) if op == "sum" else None
    return _viewed(_OPS[op], dtype, dtype) if dtype.kind == "f" else _of_integers(op, dtype)


def _of_integers(op: str, dtype: np.dtype[Any]) -> Plan:
    name, size = _OPS[op], dtype.itemsize
    if size < 4:
        return _cast(name, np.int32, dtype)
    if dtype.kind == "i" or op in ("sum", "prod"):
        return _viewed(name, np.dtype(f"i{size}"), dtype)
    return _cast(name, np.int64, dtype) if size == 4 else _ordered(name)


def _viewed(op: str, carried: Any, dtype: Any) -> Plan:
    return Plan(op, lambda one: one.view(carried), lambda one: one.view(dtype))


def _cast(op: str, carried: Any, dtype: Any) -> Plan:
    return Plan(op, lambda one: one.astype(carried), lambda one: one.astype(dtype))


def _ordered(op: str) -> Plan:
    """Compare uint64 as int64: with the first bit turned over their order is the same."""
    return Plan(
        op,
        lambda one: (one ^ _SIGN).view(np.int64),
        lambda one: one.view(np.uint64) ^ _SIGN,
    )
