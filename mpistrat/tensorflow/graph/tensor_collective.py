"""`SameShape`: collectives whose results have their tensors' shapes, without copies."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
import tensorflow as tf

from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.collectives.health.interrupts import heeding
from mpistrat.tensorflow.errors import passed_on, translated
from mpistrat.tensorflow.graph import gpu_op, native_op, xla_call
from mpistrat.tensorflow.graph.ordering import in_order
from mpistrat.tensorflow.private import graph as private_graph
from mpistrat.types import Array

__all__ = ["Finish", "Native", "SameShape", "Start", "check_dtypes"]

Finish: TypeAlias = Callable[[float | None], Any]
Start: TypeAlias = Callable[[list[Array], list[Array]], Finish | None]
Dtypes: TypeAlias = tuple[Any, ...]


class Native(Protocol):
    """The native start of a collective of one tensor."""

    def how(self, array: Array) -> tuple[int, int, int] | None:
        """Return a function, its state and its kind (native_op.py) for arrays like this one."""
        ...

    def carry_on(self, status: int, sequence: int, source: Array, result: Array) -> Finish:
        """Take over a call that native code has begun; return the function that awaits it."""
        ...


_keys = itertools.count(1)
_meanings: dict[int, tuple[weakref.ref[SameShape], Dtypes]] = {}


class SameShape:
    """A collective of lists of tensors; calling it is **Collective**.

    Parameters
    ----------
    start
        Starts it with arrays, the tensors' own memory, and with those of the results;
        returns what waits for its end, given a deadline in seconds, or None if it is over.
    timeout
        Seconds that it may take; None for MPISTRAT_TIMEOUT.
    native
        The same for native code, if there is such a thing; it must not refer to this object.
    is_native
        Whether graphs run where the native operation can be had.
    """

    def __init__(
        self,
        start: Start,
        timeout: float | None,
        native: Native | None = None,
        is_native: bool = True,
    ) -> None:
        self._start, self._timeout, self._native = start, timeout, native
        self._is_native = is_native
        self._keys: dict[Dtypes, int] = {}

    def __call__(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the results, now or when the graph runs."""
        key = self._key(tensors)
        in_xla = not tf.executing_eagerly() and private_graph.in_xla()
        has_native = self._is_native and native_op.load() is not None
        # XLA compiles no `tf.numpy_function`: there `xla_call` refuses, and says what to do.
        if not has_native and not in_xla:
            return in_order(partial(self._by_numpy, tensors))
        native_op.register(_run, _carry_on)
        return _called(xla_call.call if in_xla else native_op.call, key, tensors)

    def on_gpu(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the results of tensors on the GPU that is TensorFlow's current device."""
        gpu_op.register(_run_on_gpu)
        return _called(gpu_op.call, self._key(tensors), tensors)

    def _key(self, tensors: Sequence[tf.Tensor]) -> int:
        """Return the key of this collective for tensors of these dtypes."""
        dtypes = tuple(tensor.dtype.as_numpy_dtype for tensor in tensors)
        key = self._keys.get(dtypes)
        if key is None:
            check_dtypes(dtypes)
            key = self._keys[dtypes] = next(_keys)
            # Weak: graphs hold the key alone, and a strategy has to be freed while they live.
            _meanings[key] = weakref.ref(self), dtypes
            # Not at exit: graphs may run until the communicator is closed, which comes later.
            weakref.finalize(self, _meanings.pop, key).atexit = False
            self._tell_native(key, dtypes)
        return key

    def _tell_native(self, key: int, dtypes: Dtypes) -> None:
        if self._native is None or len(dtypes) != 1 or native_op.load() is None:
            return
        # An empty array, of which only the dtype is looked at.
        how = self._native.how(np.empty(0, dtypes[0]))
        if how is not None:
            native_op.add_native(key, *how)
            # Before the state goes, which is the communicator's.
            weakref.finalize(self, native_op.remove_native, key)

    def begin_natively(self, native: Native) -> None:
        """Let native code begin its calls from now on; see `native`. **Local.**"""
        self._native = native
        for dtypes, key in self._keys.items():
            self._tell_native(key, dtypes)

    def begin(self, sources: list[Array], results: list[Array]) -> Callable[[], Any] | None:
        """Start it; return the function that waits for its end, or None if it has ended."""
        finish = passed_on(self._start, sources, results)
        return None if finish is None else partial(passed_on, heeding, finish, self._timeout)

    def carry_on(
        self, status: int, sequence: int, source: Array, result: Array
    ) -> Callable[[], Any]:
        """Take over a call that native code has begun; return the function that awaits its end."""
        if self._native is None:
            raise AssertionError("only what has a native way is begun by native code")
        finish = passed_on(self._native.carry_on, status, sequence, source, result)
        return partial(passed_on, heeding, finish, self._timeout)

    def _by_numpy(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        def run(*arrays: Array) -> list[Array]:
            results: list[Array] = [np.empty(array.shape, array.dtype) for array in arrays]
            finish = self.begin([np.asarray(array) for array in arrays], results)
            if finish is not None:
                finish()
            return results

        if tf.executing_eagerly():
            return [tf.convert_to_tensor(one) for one in run(*(one.numpy() for one in tensors))]
        # It returns the dtypes only, so the shapes are set below.
        found = tf.numpy_function(run, tensors, [tensor.dtype for tensor in tensors])
        for result, tensor in zip(found, tensors, strict=True):
            result.set_shape(tensor.shape)
        return list(found)


def _called(
    call: Callable[[int, Sequence[tf.Tensor]], list[tf.Tensor]],
    key: int,
    tensors: Sequence[tf.Tensor],
) -> list[tf.Tensor]:
    """Call an operation for the collective of `key`, in the order of the graph's others."""
    try:
        return in_order(partial(call, key, tensors))
    # Eagerly the operation raises here; in a graph, where the tf.function is called (errors.py).
    except tf.errors.OpError as error:
        raise translated(error) from None


def check_dtypes(dtypes: Iterable[Any]) -> None:
    """Raise `ArgumentTypeError` unless tensors of these dtypes can be sent. **Local.**"""
    for dtype in dtypes:
        passed_on(as_array, np.empty(0, dtype))


def _run(
    key: int,
    sources: list[native_op.Bytes],
    results: list[native_op.Bytes],
    shapes: list[native_op.Shape],
) -> Callable[[], Any] | None:
    """Run the collective of `key` for the native operation."""
    collective, dtypes = _meaning(key)
    arrays = [list(map(_array, memories, dtypes, shapes)) for memories in (sources, results)]
    return collective.begin(*arrays)


def _run_on_gpu(key: int, memory: gpu_op.GpuMemory) -> Callable[[], Any] | None:
    """Run the collective of `key` for tensors on a GPU."""
    collective, dtypes = _meaning(key)
    with memory.current():
        return collective.begin(*memory.arrays(dtypes))


def _carry_on(
    key: int,
    status: int,
    sequence: int,
    source: native_op.Bytes,
    result: native_op.Bytes,
    shape: native_op.Shape,
) -> Callable[[], Any]:
    """Take over the call that native code has begun for `key`."""
    collective, (dtype,) = _meaning(key)
    arrays = (_array(memory, dtype, shape) for memory in (source, result))
    return collective.carry_on(status, sequence, *arrays)


def _array(memory: native_op.Bytes, dtype: Any, shape: native_op.Shape) -> Array:
    array: Array = memory.view(dtype).reshape(shape)
    return array


def _meaning(key: int) -> tuple[SameShape, Dtypes]:
    reference, dtypes = _meanings.get(key, (lambda: None, ()))
    collective = reference()
    if collective is None:
        raise native_op.UnknownKeyError(f"the strategy of call {key} is gone")
    return collective, dtypes
