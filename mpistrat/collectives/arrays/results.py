"""Find memory for the results of collectives, and check what users give for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from mpistrat.collectives.arrays.conversion import is_aligned, place_of
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.system.kernels import compiled_module
from mpistrat.types import Array

__all__ = [
    "Out",
    "Spare",
    "check_out",
    "check_out_of_rows",
    "deliver",
    "deliver_rows",
    "landing",
    "new_like",
    "new_result",
    "room",
]


class Spare:
    """Memory for a result of guessed length; where that is wrong, another takes its place."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array


Out: TypeAlias = Array | Spare | None
"""Where the result of a call of rows goes."""


def new_result(shape: Sequence[int], dtype: Any) -> Array:
    """Return a new array of the host, not initialised; of memory that is used again, if long."""
    module = compiled_module()
    if module is None:
        return np.empty(shape, dtype)
    made: Array = module.new_result(np.dtype(dtype), shape)
    return made


def new_like(array: Array, count: int, dtype: Any = None) -> Array:
    """Return a new flat array of `count` elements where `array` is, not initialised."""
    if isinstance(array, np.ndarray):
        return new_result((count,), array.dtype if dtype is None else dtype)
    return np.empty_like(array, dtype=dtype, shape=(count,))


def check_out(
    out: Array | None,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    what: str,
    source: Array | None = None,
) -> None:
    """Raise unless `out` is None or an array that a result of `shape` and `dtype` can go to.

    It has to be in the same place as `source`, if that is given, else on the host.
    """
    if out is None:
        return
    if source is not None and not isinstance(source, np.ndarray):
        _check_out_on_gpu(out, shape, dtype, what, source)
        return
    if not isinstance(out, np.ndarray):
        raise ArgumentTypeError(f"{what}: out is a {type(out).__name__}; expected a NumPy array")
    if isinstance(out, np.ma.MaskedArray):
        raise ArgumentTypeError(
            f"{what}: out is a masked array, whose mask would hide the result; pass out.data"
        )
    if out.shape != shape or out.dtype != dtype or not out.flags.writeable:
        raise UsageError(
            f"{what}: out has shape {out.shape}, dtype {out.dtype}, writeable="
            f"{out.flags.writeable}; expected a writeable array of shape {shape}, dtype {dtype}"
        )


def _check_out_on_gpu(
    out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], what: str, source: Array
) -> None:
    place = place_of(source)
    if type(out) is not type(source) or place_of(out) != place:
        raise ArgumentTypeError(
            f"{what}: out is a {type(out).__name__}; expected an array of CuPy on {place}, where"
            " the array is"
        )
    if out.shape != shape or out.dtype != dtype:
        raise UsageError(
            f"{what}: out has shape {out.shape}, dtype {out.dtype}; expected shape {shape}, dtype"
            f" {dtype}"
        )
    # NumPy marks such views as read-only, CuPy does not.
    steps = zip(out.strides, shape, strict=True)
    if out.size and any(step == 0 for step, length in steps if length > 1):
        raise UsageError(
            f"{what}: out has several elements in one place (a stride of 0, as of broadcast_to);"
            " expected memory for each element"
        )


def landing(out: Array | None, send: Array) -> Array:
    """Return flat memory for the result of `send`: that of `out` where it fits, else new memory.

    The two may be the same memory; if they only overlap, new memory is safe.
    """
    if not isinstance(send, np.ndarray):
        return _landing_on_gpu(out, send)
    if out is None or out.dtype != send.dtype or not out.flags.carray:
        return new_like(send, send.size)
    if np.may_share_memory(out, send) and out.ctypes.data != send.ctypes.data:
        return new_like(send, send.size)
    return np.asarray(out).ravel()  # not of a subclass, such as a matrix, which stays 2-d


def _landing_on_gpu(out: Any, send: Any) -> Array:
    if out is None or out.dtype != send.dtype or not out.flags.c_contiguous:
        return new_like(send, send.size)
    if _overlap(out.data.ptr, send.data.ptr, out.nbytes) or not is_aligned(out):
        return new_like(send, send.size)
    found: Array = out.ravel()
    return found


def _overlap(first: int, second: int, nbytes: int) -> bool:
    """Tell whether arrays of `nbytes` at two addresses share a part, but are not the same."""
    return 0 < abs(first - second) < nbytes


def room(out: Out, like: Array, count: int, axis: int = 0) -> Array:
    """Return flat memory for `count` elements, with `axis` outermost, of a call that sends `like`.

    It is that of `out` where it fits and has no part of `like`, else new memory.
    """
    if isinstance(out, Spare):
        out = out.array
    if axis or out is None or not isinstance(like, np.ndarray):
        return new_like(like, count)
    fits = out.size == count and out.dtype == like.dtype and out.flags.carray
    if not fits or np.may_share_memory(out, like):
        return new_like(like, count)
    return np.asarray(out).ravel()


def check_out_of_rows(out: Out, source: Array, axis: int, what: str) -> None:
    """Raise unless `out` could be a result like `source` but for its length along `axis`."""
    if out is None or isinstance(out, Spare):
        return
    shape = list(source.shape)
    if np.ndim(out) == source.ndim:
        shape[axis] = np.shape(out)[axis]
    check_out(out, tuple(shape), source.dtype, what, source)


def deliver_rows(result: Array, out: Out, what: str) -> Array:
    """Return `result` in `out`, whose shape may be found to be wrong only now.

    Raises
    ------
    UsageError, ArgumentTypeError
        It is, on this rank: the others have their results.
    """
    if isinstance(out, Spare):
        return result
    check_out(out, result.shape, result.dtype, what, result)
    return deliver(result, out)


def deliver(result: Array, out: Array | None) -> Array:
    """Return `result` in `out`, if one was given."""
    if out is None:
        return result
    if not isinstance(result, np.ndarray) and result.data.ptr == out.data.ptr:
        return out
    if not np.may_share_memory(result, out):
        out[...] = result
    return out
