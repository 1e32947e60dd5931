"""Collectives whose results have the shapes and dtypes of their tensors, without copies."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from mpistrat.tensorflow import native_op, private_api, xla_call
from mpistrat.tensorflow.errors import passed_on
from mpistrat.tensorflow.in_order import in_order
from mpistrat.types import Array

__all__ = ["Finish", "SameShape"]

Finish: TypeAlias = Callable[[float | None], Any]
Start: TypeAlias = Callable[[list[Array], list[Array]], Finish | None]
Dtypes: TypeAlias = tuple[Any, ...]

_keys = itertools.count(1)
_meanings: dict[int, tuple[weakref.ref[SameShape], Dtypes]] = {}


class SameShape:
    """A collective of lists of tensors; calling it is **Collective**.

    Parameters
    ----------
    start
        Starts it with flat arrays, the tensors' own memory, and with those of the results;
        returns what waits for its end, given a deadline in seconds, or None if it is over.
    timeout
        Seconds that it may take; None for MPISTRAT_TIMEOUT.
    """

    def __init__(self, start: Start, timeout: float | None) -> None:
        self._start, self._timeout = start, timeout
        self._keys: dict[Dtypes, int] = {}

    def __call__(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the results, now or when the graph runs."""
        in_xla = not tf.executing_eagerly() and private_api.in_xla()
        if native_op.load() is None and not in_xla:
            return in_order(partial(self._by_numpy, tensors))
        native_op.register(_run)
        call = xla_call.call if in_xla else native_op.call
        return in_order(partial(call, self._key(tensors), tensors))

    def _key(self, tensors: Sequence[tf.Tensor]) -> int:
        """Return a number that stands for this collective of tensors of these dtypes."""
        dtypes = tuple(tensor.dtype.as_numpy_dtype for tensor in tensors)
        key = self._keys.get(dtypes)
        if key is None:
            key = self._keys[dtypes] = next(_keys)
            _meanings[key] = weakref.ref(self), dtypes
            weakref.finalize(self, _meanings.pop, key)
        return key

    def begin(self, sources: list[Array], results: list[Array]) -> Callable[[], Any] | None:
        """Start it; return what waits for its end, unless that is here."""
        finish = self._start(sources, results)
        return None if finish is None else partial(finish, self._timeout)

    def _by_numpy(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        def run(*arrays: Array) -> list[Array]:
            results = [np.empty(array.shape, array.dtype) for array in arrays]
            with passed_on():
                finish = self.begin(_flat(arrays), _flat(results))
                if finish is not None:
                    finish()
            return results

        if tf.executing_eagerly():
            return [tf.convert_to_tensor(one) for one in run(*(one.numpy() for one in tensors))]
        found = tf.numpy_function(run, tensors, [tensor.dtype for tensor in tensors])
        for result, tensor in zip(found, tensors, strict=True):
            result.set_shape(tensor.shape)
        return list(found)


def _flat(arrays: Sequence[Array]) -> list[Array]:
    return [np.ravel(array) for array in arrays]


def _run(
    key: int, sources: list[native_op.Bytes], results: list[native_op.Bytes]
) -> Callable[[], Any] | None:
    """Do what the native operation with `key` is for."""
    reference, dtypes = _meanings.get(key, (lambda: None, ()))
    collective = reference()
    if collective is None:
        raise native_op.UnknownKeyError(f"the strategy of call {key} is gone")
    typed = [
        [memory.view(dtype) for memory, dtype in zip(memories, dtypes, strict=True)]
        for memories in (sources, results)
    ]
    return collective.begin(*typed)
