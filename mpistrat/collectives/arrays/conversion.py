"""Convert and check the arrays that users pass to collectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import accumulate
from typing import Any

import numpy as np

from mpistrat.collectives.arrays import on_device
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.system.kernels import kernels, why_no_kernels
from mpistrat.types import Array, ArrayLike

__all__ = [
    "are_alike",
    "as_array",
    "as_operand",
    "as_operands",
    "can_be_sent",
    "can_take_results",
    "check_axis",
    "cut",
    "flat",
    "is_aligned",
    "place_of",
]

_SUPPORTED: set[np.dtype[Any]] = {
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
_BOOL = np.dtype(np.bool_)
_TENSORFLOWS_OBJECTS = ("string", "resource", "variant")
_NAMES = "bool, (u)int8 to (u)int64, float16, bfloat16, float32, float64, complex64 or complex128"


def can_be_sent(dtype: np.dtype[Any]) -> bool:
    """Tell whether arrays of a dtype can be sent, once they are in this machine's byte order."""
    native = dtype.newbyteorder("=")
    return native in _SUPPORTED or native.name == "bfloat16"


def as_array(value: ArrayLike) -> Array:
    """Return `value` as a NumPy array that can be sent, without a copy where that is possible.

    Bools whose bytes are neither 0 nor 1 are copied; what is not 0 is true.

    Parameters
    ----------
    value
        A NumPy array or scalar, a Python number, a nested list of numbers, a host array of
        another library (DLPack or ``__array__``), or an array on a GPU, which is copied.

    Raises
    ------
    ArgumentTypeError
        The dtype cannot be sent (objects, strings, long double, ...).
    UsageError
        The byte order is not this machine's.
    """
    array = value if type(value) is np.ndarray else _convert(value)
    if array.dtype not in _SUPPORTED:
        _check_dtype(array)
    return array if array.dtype.kind != "b" else _plain_bools(array)


def as_operand(value: ArrayLike) -> Array:
    """Return `value` as an array for a collective: on its GPU, or of the host as `as_array` does.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        CuPy's has NumPy's methods, and NumPy's functions take it.
    """
    there = None if isinstance(value, np.ndarray) else on_device.as_gpu_array(value)
    if there is None:
        return as_array(value)
    if there.dtype not in _SUPPORTED:
        _check_dtype(there)
    found: Array = there if there.dtype.kind != "b" else on_device.plain_bools(there)
    return found


def as_operands(values: Iterable[ArrayLike]) -> list[Array]:
    """Return each value as :func:`as_operand` does; all on one GPU, or all on the host."""
    if isinstance(values, (list, tuple)):  # else each is taken in before the next one is made
        found = list(values)
        if are_alike(found) or on_device.on_one_gpu(found) is not None:
            dtypes = {one.dtype for one in found}
            if dtypes <= _SUPPORTED and _BOOL not in dtypes:
                return found
    _check_order(values)
    found = [_operand_at(index, value) for index, value in enumerate(values)]
    places = {place_of(one) for one in found}
    if len(places) > 1:
        raise UsageError(
            f"a list of arrays of {' and '.join(sorted(places))}; expected all of them in one"
            " place: move some, or make a call for each place"
        )
    return found


def _check_order(values: Any) -> None:
    """Refuse what is no list, or has no order that is the same on all ranks."""
    kind = type(values).__name__
    if isinstance(values, (Mapping, AbstractSet)):
        advice = "list(values.values())" if isinstance(values, Mapping) else "a list"
        raise ArgumentTypeError(
            f"a {kind} in place of a list of arrays; expected {advice}, in one order on all ranks"
        )
    if not isinstance(values, Iterable):
        raise ArgumentTypeError(f"a {kind} in place of a list of arrays")


def _operand_at(index: int, value: ArrayLike) -> Array:
    try:
        return as_operand(value)
    except UsageError as error:
        raise type(error)(f"array {index} of the list: {error}") from error.__cause__


def place_of(array: Array) -> str:
    """Return where an array is, in words."""
    return "the host" if isinstance(array, np.ndarray) else f"GPU:{on_device.index_of(array)}"


def are_alike(values: list[Any]) -> bool:
    """Tell whether there are values, all NumPy arrays that can be sent as they lie, and alike.

    They are in C order, aligned, in this machine's byte order, of no subclass, and of dtypes with
    the same number, which for those that can be sent means the same dtype. Without kernels nobody
    gains from that, and the answer is no.
    """
    return why_no_kernels() is None and bool(kernels().are_alike(values))


def can_take_results(places: list[Any], arrays: list[Any]) -> bool:
    """Tell whether the kernels can write the results of arrays that are alike into `places`.

    They can if each place is a plain array of its array's shape and dtype, no two places have
    memory in common, and each is its array or has none in common with it. Without kernels the
    answer is no.
    """
    return why_no_kernels() is None and bool(kernels().can_take_results(places, arrays))


def cut(total: Array, like: list[Array]) -> list[Array]:
    """Return views of the parts of `total`, one after the other, shaped as the arrays `like`."""
    if why_no_kernels() is None and isinstance(total, np.ndarray):
        parts: list[Array] = kernels().cut(total, like)
        return parts
    ends = list(accumulate(one.size for one in like))
    return [
        total[end - one.size : end].reshape(one.shape) for end, one in zip(ends, like, strict=True)
    ]


def _plain_bools(array: Array) -> Array:
    """Return bools as bytes of 0 and 1: a view of other memory may hold any, and bits travel."""
    numbers = array.view(np.uint8)
    return array if numbers.max(initial=0) <= 1 else np.asarray(numbers != 0)


def _convert(value: ArrayLike) -> Array:
    if value is None:
        raise ArgumentTypeError(
            "None is no array; expected an array or a number: a function that returns nothing"
            " has no value, and in place of a gradient that is None send zeros"
        )
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentTypeError(
            "a masked array would lose its mask between ranks; send value.filled(...), or data"
            " and mask as two arrays"
        )
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray) and _has_bytes(value):
        try:
            return np.from_dlpack(value)
        except Exception:  # noqa: BLE001 - each library has its own: TensorFlow's are no built-in ones
            pass  # e.g. a dtype or device that DLPack cannot hand over: __array__ may
        found = on_device.to_host(value)
        if found is not None:
            return found
    try:
        return np.asarray(value)
    except Exception as error:  # each library has its own, as for tensors with gradients
        raise ArgumentTypeError(
            f"cannot make an array of a {type(value).__name__}: {error}; pass an array or a number"
        ) from error


def _has_bytes(value: Any) -> bool:
    """Tell whether the elements of another library's array are plain bytes, or may be.

    TensorFlow ends the process where it is asked to hand over others by DLPack.
    """
    return getattr(getattr(value, "dtype", None), "name", None) not in _TENSORFLOWS_OBJECTS


def _check_dtype(array: Array) -> None:
    dtype = array.dtype
    if not dtype.isnative:
        raise UsageError(
            f"array of dtype {dtype.str} is not in this machine's byte order; expected a native"
            " one: convert it with array.astype(array.dtype.newbyteorder('='))"
        )
    # By its name: `import mpistrat` must not import ml_dtypes, which defines it.
    if dtype.name != "bfloat16":
        raise ArgumentTypeError(
            f"array of dtype {dtype} cannot be sent between ranks; expected {_NAMES}; convert it"
            " with astype, or send Python objects with bcast_object or allgather_object"
        )
    _SUPPORTED.add(dtype)


def check_axis(axis: int, ndim: int, what: str) -> int:
    """Return `axis` counted from the front; raise `UsageError` if it is out of range."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise ArgumentTypeError(f"{what}: axis={axis!r} is a {type(axis).__name__}; expected int")
    if ndim == 0:
        raise UsageError(f"{what}: a 0-d array has no axis; give it one with numpy.expand_dims")
    if not -ndim <= axis < ndim:
        raise UsageError(
            f"{what}: axis={axis} is out of range for an array of {ndim} dimensions; expected"
            f" {-ndim} to {ndim - 1}"
        )
    return int(axis) % ndim


def flat(array: Array) -> Array:
    """Return the elements in C order as one contiguous, aligned dimension: a view if possible."""
    return array.ravel() if is_aligned(array) else array.flatten()


def is_aligned(array: Any) -> bool:
    """Tell whether an array's elements are at multiples of their size."""
    if isinstance(array, np.ndarray):
        return array.flags.aligned
    return bool(array.data.ptr % array.itemsize == 0)
