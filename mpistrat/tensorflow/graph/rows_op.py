"""The operation ``MpistratRows``: gather rows of NumPy arrays in place.

A tensor of an array is a copy of all of it (TensorFlow 2.21 makes two where its memory does not
begin at a multiple of 64), on each rank and in each fit. Its other side is kernels/tf/rows_op.h.
"""

from __future__ import annotations

import ctypes
import itertools
import secrets
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from mpistrat.tensorflow.graph import native_library
from mpistrat.types import Array

__all__ = ["InPlace"]

_numbers = itertools.count(secrets.randbits(60))  # a graph of another process finds none of ours


class InPlace:
    """Arrays whose rows a dataset gathers in place. **Local.**

    Parameters
    ----------
    arrays
        NumPy's, or TensorFlow's values, each with rows, its first axis. The former are read while
        datasets run: a change of one changes the rows that are read next. Copied now, so that
        later changes are not seen, are those that are not contiguous in C's order (such as a
        transposed or a sliced one); and to tensors, those that the operation cannot read.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._library = native_library.operations() if any(map(_fits, arrays)) else None
        here = [self._library is not None and _fits(one) for one in arrays]
        self._arrays = {
            # The operation finds a row by its number times the bytes of one. Other layouts are
            # copied here.
            next(_numbers): np.ascontiguousarray(one)
            for one, is_here in zip(arrays, here, strict=True)
            if is_here
        }
        keys = iter(self._arrays)
        self._keys = [next(keys) if is_here else None for is_here in here]
        pairs = zip(arrays, here, strict=True)
        self.tensors = tuple(_tensor(one) for one, is_here in pairs if not is_here)
        self._offer()

    def _offer(self) -> None:
        if self._library is None:
            return
        _, library = self._library
        for key, array in self._arrays.items():
            count = array.shape[0]
            numbers = (ctypes.c_int64(n) for n in (count, array.nbytes // max(count, 1)))
            address = ctypes.c_void_p(array.ctypes.data)
            library.mpistrat_tf_add_rows(ctypes.c_int64(key), address, *numbers)

    def rows(
        self, indices: tf.Tensor, tensors: Sequence[Any], gather: Callable[..., Any] = tf.gather
    ) -> list[Any]:
        """Return the rows of each array in the order of `indices`, a vector of int64.

        `tensors` are those of this object, as they come out of a dataset of them; ``gather(tensor,
        indices)`` takes their rows.
        """
        others = iter(tensors)
        return [
            gather(next(others), indices) if key is None else self._gathered(key, indices)
            for key in self._keys
        ]

    def _gathered(self, key: int, indices: tf.Tensor) -> tf.Tensor:
        array = self._arrays[key]
        module, _ = self._library  # type: ignore[misc] # there are no keys without it
        return module.mpistrat_rows(
            indices, dtype=tf.as_dtype(array.dtype), key=key, row=array.shape[1:]
        )

    def keep_for(self, dataset: tf.data.Dataset) -> None:
        """Keep the arrays alive as long as `dataset` and its iterators."""
        if self._library is not None:
            # Not at exit: pipelines may run until the process ends.
            # The finalizer holds the arrays: this object need not live as long as the dataset.
            weakref.finalize(dataset, _forget, self._library[1], self._arrays).atexit = False


def _fits(array: Any) -> bool:
    """Whether an array's rows can be gathered in place: plain numbers, at least one axis."""
    is_array = isinstance(array, np.ndarray) and array.ndim > 0
    return is_array and array.dtype.kind in "biufc" and array.dtype.isnative


def _tensor(array: Any) -> Any:
    return tf.convert_to_tensor(array) if isinstance(array, np.ndarray) else array


def _forget(library: Any, arrays: dict[int, Array]) -> None:
    for key in arrays:
        library.mpistrat_tf_forget_rows(ctypes.c_int64(key))
    arrays.clear()
