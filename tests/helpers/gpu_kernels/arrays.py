"""Arrays whose memory ends where they end, at chosen alignments, with difficult values."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpistrat.types import Array

__all__ = ["at_offset", "dtype_of", "random_values", "same_bits"]

_SPECIAL = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40, 65520.0, 3e38)


def dtype_of(name: str) -> np.dtype[Any]:
    """Return a dtype by its name."""
    if name == "bfloat16":
        import ml_dtypes

        name = ml_dtypes.bfloat16
    found: np.dtype[Any] = np.dtype(name)
    return found


def at_offset(values: Array, nbytes: int) -> Array:
    """Return a copy `nbytes` behind a boundary of 16 bytes, which ends with its memory."""
    raw = np.empty(nbytes + values.nbytes, np.uint8)
    if raw.ctypes.data % 16:
        raise RuntimeError("NumPy's memory is expected at multiples of 16 bytes")
    copy = raw[nbytes:].view(values.dtype)
    copy[...] = values.ravel()
    return copy


def random_values(generator: np.random.Generator, dtype: np.dtype[Any], count: int) -> Array:
    """Return numbers of all sizes, some of them infinite, NaN, subnormal or zero.

    Bools have other bytes than 0 and 1 too.
    """
    if dtype.kind == "b":
        return generator.integers(0, 3, count).astype(np.uint8).view(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, count, dtype, endpoint=True)
    if dtype.kind == "c":
        parts = _floats(generator, 2 * count).astype(f"f{dtype.itemsize // 2}")
        return parts.view(dtype)
    with np.errstate(over="ignore"):
        return _floats(generator, count).astype(dtype)


def _floats(generator: np.random.Generator, count: int) -> Array:
    numbers = generator.standard_normal(count) * 10.0 ** generator.integers(-6, 4, count)
    special = generator.random(count) < 0.05
    numbers[special] = generator.choice(_SPECIAL, int(special.sum()))
    return numbers


def same_bits(got: Array, want: Array) -> bool:
    """Tell whether two arrays have the same bits, or NaN at the same places."""
    if got.dtype != want.dtype or got.size != want.size:
        return False
    got, want = got.ravel(), want.ravel()
    if got.dtype.kind == "c":
        real = f"f{got.dtype.itemsize // 2}"
        got, want = got.view(real), want.view(real)
    bits = f"u{got.itemsize}"
    is_same = got.view(bits) == want.view(bits)
    if got.dtype.kind not in "biu":
        is_same |= np.isnan(got) & np.isnan(want)
    return bool(is_same.all())
