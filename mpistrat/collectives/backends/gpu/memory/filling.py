"""Copy and convert lists of arrays on a GPU, in as few launches as their dtypes allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpistrat.collectives.backends.gpu.kernels.movement import PIECE, cast, move

__all__ = ["fill", "is_plain", "whole"]

_FLOATS = ("float16", "bfloat16", "float32", "float64")  # what the kernel converts


def fill(into: Sequence[Any], parts: Sequence[Any]) -> None:
    """Copy arrays into others of the same shapes: all of one dtype, into all of one dtype."""
    copied: list[tuple[Any, Any]] = []
    converted: list[tuple[Any, Any]] = []
    for to, part in zip(into, parts, strict=True):
        if not (is_plain(to) and is_plain(part)):
            to[...] = part
        elif to.dtype == part.dtype:
            copied.append((to, part))
        elif to.dtype.name in _FLOATS and part.dtype.name in _FLOATS:
            converted.append((to, part))
        else:
            to[...] = part
    if copied:
        _move(copied)
    if converted:
        cast([part for _, part in converted], [to for to, _ in converted])


def _move(pairs: list[tuple[Any, Any]]) -> None:
    pieces = np.zeros(len(pairs), PIECE)
    for name, side in (("to", 0), ("from", 1)):
        pieces[name] = np.array([pair[side].data.ptr for pair in pairs], np.uint64)
    pieces["row_bytes"], pieces["rows"] = [to.nbytes for to, _ in pairs], 1
    move(pieces)


def is_plain(array: Any) -> bool:
    """Tell whether an array is in C order, and aligned as its elements are."""
    return bool(array.flags.c_contiguous and array.data.ptr % array.itemsize == 0)


def whole(arrays: Sequence[Any]) -> Any:
    """Return a flat view of arrays that are parts of one, one after the other; None if not."""
    first = arrays[0]
    at = first.data.ptr
    for one in arrays:
        if one.data.mem is not first.data.mem or one.data.ptr != at or one.dtype != first.dtype:
            return None
        if not is_plain(one):
            return None
        at += one.nbytes
    count = sum(one.size for one in arrays)
    return type(first)((count,), first.dtype, first.data)
