"""TensorFlow's partitioners, which choose into how many parts a variable is divided.

Anything that is called in the same way is one too: ``partitioner(shape=..., dtype=...)`` returns
the number of parts along each axis, of which all but the first are 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpistrat.errors import ArgumentTypeError, UsageError

__all__ = [
    "FixedShardsPartitioner",
    "MaxSizePartitioner",
    "MinSizePartitioner",
    "Partitioner",
]


class Partitioner(ABC):
    """Base of the objects that choose into how many parts a variable is divided.

    References
    ----------
    tf.distribute.experimental.partitioners.Partitioner.
    """

    @abstractmethod
    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        """Return the number of parts along each axis.

        Parameters
        ----------
        shape
            Of the whole variable.
        dtype
            Of the variable.
        axis
            The one to divide. A strategy leaves it at 0, the only one that it can divide.
        """


class FixedShardsPartitioner(Partitioner):
    """Divides every variable into the same number of parts, or into its rows if they are fewer.

    Parameters
    ----------
    num_shards
        At least 1.

    Examples
    --------
    >>> FixedShardsPartitioner(num_shards=2)((10, 3), "float32")
    [2, 1]

    References
    ----------
    tf.distribute.experimental.partitioners.FixedShardsPartitioner.
    """

    def __init__(self, num_shards: int) -> None:
        _check_positive(self, num_shards=num_shards)
        self._num_shards = num_shards

    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        """Return the number of parts along each axis."""
        return _along(shape, axis, min(self._num_shards, _length(self, shape, axis)))


class MinSizePartitioner(Partitioner):
    """Divides a variable into as many parts as have at least some number of bytes.

    Parameters
    ----------
    min_shard_bytes
        Of each part; the last one may have less.
    max_shards
        How many parts at most; the number of parameter servers is a good choice.
    bytes_per_string
        Counted for each element that is a string.

    Examples
    --------
    >>> MinSizePartitioner(min_shard_bytes=4, max_shards=10)((6, 1), "float32")
    [6, 1]

    References
    ----------
    tf.distribute.experimental.partitioners.MinSizePartitioner.
    """

    def __init__(
        self, min_shard_bytes: int = 256 << 10, max_shards: int = 1, bytes_per_string: int = 16
    ) -> None:
        _check_positive(
            self,
            min_shard_bytes=min_shard_bytes,
            max_shards=max_shards,
            bytes_per_string=bytes_per_string,
        )
        self._min_shard_bytes, self._max_shards = min_shard_bytes, max_shards
        self._bytes_per_string = bytes_per_string

    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        """Return the number of parts along each axis."""
        length = _length(self, shape, axis)
        nbytes = math.prod(shape) * _element_bytes(dtype, self._bytes_per_string)
        wanted = math.ceil(nbytes / self._min_shard_bytes)
        return _along(shape, axis, max(1, min(length, self._max_shards, wanted)))


class MaxSizePartitioner(Partitioner):
    """Divides a variable into as few parts as have at most some number of bytes.

    Parameters
    ----------
    max_shard_bytes
        Of each part. A single row may have more.
    max_shards
        How many parts at most, whatever their size; None for any number.
    bytes_per_string
        Counted for each element that is a string.

    Examples
    --------
    >>> MaxSizePartitioner(max_shard_bytes=4, max_shards=2)((6, 1), "float32")
    [2, 1]

    References
    ----------
    tf.distribute.experimental.partitioners.MaxSizePartitioner.
    """

    def __init__(
        self, max_shard_bytes: int, max_shards: int | None = None, bytes_per_string: int = 16
    ) -> None:
        _check_positive(self, max_shard_bytes=max_shard_bytes, bytes_per_string=bytes_per_string)
        if max_shards:  # 0 is no limit either, as in TensorFlow
            _check_positive(self, max_shards=max_shards)
        self._max_shard_bytes, self._max_shards = max_shard_bytes, max_shards
        self._bytes_per_string = bytes_per_string

    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        """Return the number of parts along each axis."""
        length = _length(self, shape, axis)
        nbytes = math.prod(shape) * _element_bytes(dtype, self._bytes_per_string)
        if nbytes == 0:
            return _along(shape, axis, 1)
        rows = max(1, math.floor(self._max_shard_bytes / (nbytes / length)))
        count = math.ceil(length / rows)
        return _along(shape, axis, min(count, self._max_shards or count))


def _check_positive(partitioner: Partitioner, **arguments: Any) -> None:
    for name, value in arguments.items():
        what = f"{type(partitioner).__name__}: {name}={value!r}"
        if not isinstance(value, (int, float, np.number)):
            raise ArgumentTypeError(f"{what}; expected a number, at least 1")
        if value < 1:
            raise UsageError(f"{what}; expected at least 1")


def _length(partitioner: Partitioner, shape: Sequence[int], axis: int) -> int:
    if not -len(shape) <= axis < len(shape):
        raise UsageError(
            f"{type(partitioner).__name__}: axis={axis} of a variable of shape {tuple(shape)};"
            " expected one of its axes"
        )
    return int(shape[axis])


def _element_bytes(dtype: Any, bytes_per_string: int) -> int:
    kind = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    return bytes_per_string if kind.kind in "OSUT" else kind.itemsize


def _along(shape: Sequence[int], axis: int, count: int) -> list[int]:
    result = [1] * len(shape)
    result[axis] = count
    return result
