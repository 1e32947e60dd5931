"""Data types in a checkpoint: their names, and how safetensors files hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.errors import CheckpointError
from mpistrat.types import Array

__all__ = ["as_dtype", "flat_bytes", "stored", "unstored"]

_NATIVE = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
_AS_BYTES = ("bfloat16", "complex64", "complex128")  # not all versions of the library know them


def as_dtype(name: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a name, also those of ml_dtypes.

    Raises
    ------
    CheckpointError
        There is no such name.
    """
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    if name not in _NATIVE + _AS_BYTES:
        raise CheckpointError(
            f"dtype {name!r} in the index; expected one of {', '.join(_NATIVE + _AS_BYTES)}"
        )
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def stored(array: Array) -> Array:
    """Return `array` as a file holds it: in C order; types of few libraries as bytes."""
    array = np.asarray(array, order="C")
    if array.dtype.name in _NATIVE:
        return array
    return flat_bytes(array).reshape(*array.shape, array.itemsize)


def unstored(array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array | None:
    """Return the array that :func:`stored` was given; None if its dtype does not fit."""
    is_native = dtype.name in _NATIVE
    expected = (dtype, shape) if is_native else (np.dtype(np.uint8), (*shape, dtype.itemsize))
    if (array.dtype, array.shape) != expected:
        return None
    return flat_bytes(array).view(dtype).reshape(shape)


def flat_bytes(array: Array) -> Array:
    """Return a view of a C-contiguous array as one dimension of bytes."""
    return array.reshape(-1).view(np.uint8)
