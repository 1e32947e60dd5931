"""Digests of arrays, made of a sample of their rows, for comparing them. All is **Local.**"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

__all__ = ["Digest", "digests_of"]

_SAMPLE_BYTES = 256 << 10
"""Longer arrays are sampled: so many bytes of rows spread over all of them."""

_PARTS = 64
_NO_NUMBER = 1234.5  # stands for infinities and for what is no number
_NONE = np.empty(0)
_TOLERANCE = 1e-5

_MOST_OF_A_ROW = 4 << 10
_LEAST_ROWS = 16


class Digest(NamedTuple):
    """Notes of an array.

    Attributes
    ----------
    text
        Its dtype and shape, and a digest of what is compared exactly: integers, strings.
    sums, scales
        Weighted sums of floating-point numbers, which ranks may round differently, of up to 64
        parts; and of their absolute values.
    """

    text: str
    sums: np.ndarray[Any, Any]
    scales: np.ndarray[Any, Any]

    def is_close(self, other: Digest) -> bool:
        """Tell whether two arrays are equal but for rounding, as far as their samples go."""
        if self.text != other.text:
            return False
        scales = np.maximum(self.scales, other.scales)
        allowed = _TOLERANCE * np.maximum(scales, scales.mean() if scales.size else 0)
        return bool((abs(self.sums - other.sums) <= allowed).all())


def digests_of(array: Any) -> list[Digest]:
    """Return notes of rows of an array, or of each tensor of a composite (ragged, sparse).

    Arrays in which one row in a thousand differs may have equal ones; two orders of the same rows
    do not, but for a chance of almost nothing.
    """
    return [_of_leaf(leaf) for leaf in tf.nest.flatten(array, expand_composites=True)]


def _of_leaf(leaf: Any) -> Digest:
    found = leaf.numpy() if isinstance(leaf, tf.Tensor) else leaf
    if not isinstance(found, np.ndarray):
        return Digest(type(leaf).__name__, _NONE, _NONE)
    sample = found if found.nbytes <= _SAMPLE_BYTES else _sample(found)
    name = f"{found.dtype}{list(found.shape)}"
    if found.dtype.kind in "iubUSMm" or found.dtype.names:
        return Digest(f"{name} {_digest(np.ascontiguousarray(sample).tobytes())}", _NONE, _NONE)
    if found.dtype == object:
        return Digest(f"{name} {_digest(repr(sample.tolist()).encode())}", _NONE, _NONE)
    if found.dtype.kind == "c":
        sample = np.stack([sample.real, sample.imag])
    return Digest(name, *_sums(np.ravel(sample).astype(np.float64)))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _sums(numbers: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    if numbers.size == 0:
        return _NONE, _NONE
    weights = 0.5 + (0.618033988749895 * np.arange(numbers.size)) % 1  # neighbours' ones differ
    weighted = weights * np.where(np.isfinite(numbers), numbers, _NO_NUMBER)
    starts = np.unique(np.linspace(0, numbers.size - 1, _PARTS).astype(np.intp))
    return np.add.reduceat(weighted, starts), np.add.reduceat(abs(weighted), starts)


def _sample(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return rows spread over all of an array, the first and the last among them."""
    row_bytes = max(1, array.nbytes // len(array))
    number = max(_LEAST_ROWS, _SAMPLE_BYTES // row_bytes)
    rows = array[np.unique(np.linspace(0, len(array) - 1, number).astype(np.intp))]
    if row_bytes <= _MOST_OF_A_ROW:
        return rows
    flat = rows.reshape(len(rows), -1)
    step = -(-flat.shape[1] * array.itemsize // _MOST_OF_A_ROW)
    return flat[:, ::step]
