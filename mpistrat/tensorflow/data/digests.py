"""Digests of a sample of an array's rows, for comparing arrays. **Local.**"""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

__all__ = ["Digest", "digests_of"]

_SAMPLE_BYTES = 256 << 10
"""Longer arrays are sampled: so many bytes of rows spread over all of them."""

_PARTS = 64
_NO_NUMBER = 1234.5  # stands for infinities and for what is no number
_NONE = np.empty(0)
_OF_VARIETY = 1e-5  # of the numbers' distance from their mean
_ROUNDING = {2: 1e-2, 4: 2e-6, 8: 1e-11}  # of the numbers, by bytes

_MOST_OF_A_ROW = 4 << 10
_LEAST_ROWS = 16


class Digest(NamedTuple):
    """Digest of an array, or of a sample of its rows.

    Attributes
    ----------
    text
        Its dtype and shape, and a digest of what is compared exactly: integers, strings.
    sums, allowed
        Weighted sums of floating-point numbers, which ranks may round differently, of up to 64
        parts; and how much those of two ranks may differ by that.
    """

    text: str
    sums: np.ndarray[Any, Any]
    allowed: np.ndarray[Any, Any]

    def is_close(self, other: Digest) -> bool:
        """Tell whether two arrays are equal up to rounding, judged by their samples."""
        if self.text != other.text:
            return False
        allowed = np.maximum(self.allowed, other.allowed)
        return bool((abs(self.sums - other.sums) <= allowed).all())


def digests_of(array: Any) -> list[Digest]:
    """Return the digests of an array, or of each tensor of a composite (ragged, sparse).

    Arrays in which one row in a thousand differs may have equal ones; two orders of the same rows
    do not, except with negligible probability.
    """
    return [_of_leaf(leaf) for leaf in tf.nest.flatten(array, expand_composites=True)]


def _of_leaf(leaf: Any) -> Digest:
    if not isinstance(leaf, (np.ndarray, tf.Tensor)):
        return Digest(type(leaf).__name__, _NONE, _NONE)
    found = _sample(leaf)
    sample = found.numpy() if isinstance(found, tf.Tensor) else found
    name = f"{sample.dtype}{list(leaf.shape)}"
    if sample.dtype.kind in "iubUSMm" or sample.dtype.names:
        return Digest(f"{name} {_digest(np.ascontiguousarray(sample).tobytes())}", _NONE, _NONE)
    if sample.dtype == object:
        return Digest(f"{name} {_digest(repr(sample.tolist()).encode())}", _NONE, _NONE)
    if sample.dtype.kind == "c":
        sample = np.stack([sample.real, sample.imag])
    rounding = _ROUNDING.get(sample.real.dtype.itemsize, _ROUNDING[2])
    return Digest(name, *_sums(np.ravel(sample).astype(np.float64), rounding))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _sums(
    numbers: np.ndarray[Any, Any], rounding: float
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    if numbers.size == 0:
        return _NONE, _NONE
    numbers = np.where(np.isfinite(numbers), numbers, _NO_NUMBER)
    weights = 0.5 + (0.618033988749895 * np.arange(numbers.size)) % 1  # neighbours' ones differ
    variety = _OF_VARIETY * abs(numbers - numbers.mean())
    allowed = weights * (variety.mean() + variety + rounding * abs(numbers))
    starts = np.unique(np.linspace(0, numbers.size - 1, _PARTS).astype(np.intp))
    return np.add.reduceat(weights * numbers, starts), np.add.reduceat(allowed, starts)


def _sample(array: Any) -> Any:
    """Return an array, or rows spread over all of it, the first and the last among them.

    Of long rows some columns are taken. Nothing is copied but what is returned, unless rows are
    long and the array is not contiguous.
    """
    count = array.shape[0] if len(array.shape) else 0
    size = math.prod(array.shape) * _itemsize(array)
    if size <= _SAMPLE_BYTES or count == 0:
        return array
    row_bytes = size // count
    indices = np.unique(np.linspace(0, count - 1, max(_LEAST_ROWS, _SAMPLE_BYTES // row_bytes)))
    if row_bytes > _MOST_OF_A_ROW:
        step = -(-row_bytes // _MOST_OF_A_ROW)
        is_tensor = isinstance(array, tf.Tensor)
        array = (tf.reshape if is_tensor else np.reshape)(array, [count, -1])[:, ::step]
    indices = indices.astype(np.intp)
    return tf.gather(array, indices) if isinstance(array, tf.Tensor) else array[indices]


def _itemsize(array: Any) -> int:
    return int(array.dtype.size or 16) if isinstance(array, tf.Tensor) else array.dtype.itemsize
