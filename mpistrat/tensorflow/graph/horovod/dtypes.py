"""Convert tensors to dtypes that Horovod carries, and back, without loss.

Horovod reduces seven dtypes. Sums of short integers are made in longer ones and cut off, which
wraps as a sum in their own dtype does; those of complex numbers are sums of pairs. Sums of
bfloat16 are made in float32, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from mpistrat.system.log import get_logger, warn_once

__all__ = ["Carried", "moved", "reduced"]

_LOG = get_logger(__name__)

_Change = Callable[[tf.Tensor], tf.Tensor]


class Carried(NamedTuple):
    """How tensors of one dtype travel.

    Attributes
    ----------
    dtype
        The one that Horovod gets.
    there, back
        Convert a tensor to it, and a result back; None where nothing is to be done.
    is_logical
        Whether sums are logical ORs, made as maxima.
    """

    dtype: tf.DType
    there: _Change | None = None
    back: _Change | None = None
    is_logical: bool = False


def _cast(own: tf.DType, carried: tf.DType, is_logical: bool = False) -> Carried:
    return Carried(
        carried, lambda one: tf.cast(one, carried), lambda one: tf.cast(one, own), is_logical
    )


def _bits(own: tf.DType, carried: tf.DType) -> Carried:
    return Carried(carried, lambda one: tf.bitcast(one, carried), lambda one: tf.bitcast(one, own))


def _pairs(part: tf.DType) -> Carried:
    """Real and imaginary parts side by side, in one more dimension."""
    return Carried(
        part,
        lambda one: tf.stack([tf.math.real(one), tf.math.imag(one)], -1),
        lambda one: tf.complex(one[..., 0], one[..., 1]),
    )


_COMPLEX = {tf.complex64: _pairs(tf.float32), tf.complex128: _pairs(tf.float64)}
_REDUCED = {
    **{
        dtype: Carried(dtype)
        for dtype in (
            *(tf.uint8, tf.int8, tf.int32, tf.int64),
            *(tf.float16, tf.float32, tf.float64),
        )
    },
    tf.bfloat16: _cast(tf.bfloat16, tf.float32),
    tf.int16: _cast(tf.int16, tf.int32),
    tf.uint16: _cast(tf.uint16, tf.int32),
    tf.uint32: _bits(tf.uint32, tf.int32),
    tf.uint64: _bits(tf.uint64, tf.int64),
    tf.bool: _cast(tf.bool, tf.uint8, is_logical=True),
    **_COMPLEX,
}
_MOVED = {
    **_REDUCED,
    tf.bfloat16: _bits(tf.bfloat16, tf.uint16),
    **{dtype: Carried(dtype) for dtype in (tf.bool, tf.int16, tf.uint16)},
}


def reduced(dtype: tf.DType) -> Carried | None:
    """Return how tensors of `dtype` travel in a reduction; None if Horovod cannot."""
    return _noted(dtype, _REDUCED.get(dtype))


def moved(dtype: tf.DType) -> Carried | None:
    """Return how tensors of `dtype` travel unchanged; None if Horovod cannot carry them."""
    return _noted(dtype, _MOVED.get(dtype))


def _noted(dtype: tf.DType, carried: Carried | None) -> Carried | None:
    if carried is None or carried.dtype != dtype:
        how = "by mpistrat's own backend" if carried is None else f"as {carried.dtype.name}"
        text = f"Horovod has no {dtype.name}: such tensors are sent {how}"
        warn_once(_LOG, text, text)
    return carried
