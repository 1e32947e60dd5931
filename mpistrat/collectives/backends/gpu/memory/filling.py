"""Copy and convert lists of arrays on a GPU, in as few launches as their dtypes allow."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from mpistrat.collectives.arrays.conversion import cut
from mpistrat.collectives.backends.gpu.kernels.movement import can_cast, cast, copy, pack, unpack

__all__ = ["fill", "is_plain", "join", "split", "whole"]

_IN_C_ORDER = attrgetter("_c_contiguous")


def fill(into: Sequence[Any], parts: Sequence[Any]) -> None:
    """Copy arrays into others of the same shapes: all of one dtype, into all of one dtype."""
    copied: list[tuple[Any, Any]] = []
    converted: list[tuple[Any, Any]] = []
    for to, part in zip(into, parts, strict=True):
        if not (is_plain(to) and is_plain(part)):
            to[...] = part
        elif to.dtype == part.dtype:
            copied.append((to, part))
        elif can_cast(part.dtype, to.dtype):
            converted.append((to, part))
        else:
            to[...] = part
    if copied:
        copy([part for _, part in copied], [to for to, _ in copied])
    if converted:
        cast([part for _, part in converted], [to for to, _ in converted])


def join(parts: Sequence[Any], flat: Any) -> None:
    """Copy arrays of one dtype into a flat array, one after the other."""
    if _are_plain(parts, flat):
        pack(parts, flat.data.ptr)
    else:
        fill(cut(flat, list(parts)), parts)


def split(flat: Any, parts: Sequence[Any]) -> None:
    """Copy what lies one after the other in a flat array into arrays of one dtype."""
    if _are_plain(parts, flat):
        unpack(flat.data.ptr, parts)
    else:
        fill(parts, cut(flat, list(parts)))


def _are_plain(parts: Sequence[Any], flat: Any) -> bool:
    """Tell whether arrays are in C order, of the dtype of `flat`, and aligned."""
    # Without flags, each of which would be an object; kernels copy bytes of any alignment.
    return parts[0].dtype == flat.dtype and all(map(_IN_C_ORDER, parts))


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
