"""The operation ``MpistratCall``: pass the memory of tensors to Python without a copy.

Its other side is kernels/tf/call_op.h. Where it cannot be compiled (`native_library`),
``tf.numpy_function`` does the same work with copies.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from mpistrat import built_in_sizes
from mpistrat.collectives.health.interrupts import foreign
from mpistrat.errors import BackendUnavailableError
from mpistrat.tensorflow.errors import translate_also
from mpistrat.tensorflow.graph import native_library
from mpistrat.tensorflow.graph.call_steps import (
    NOT_BEGUN,
    CallSeen,
    Rest,
    Shape,
    Step,
    UnknownKeyError,
    begin_by,
    finish,
    interrupt_told_of,
    left_interrupt,
    shapes_of,
)

__all__ = [
    "Bytes",
    "Shape",
    "UnknownKeyError",
    "add_native",
    "call",
    "has_workers",
    "load",
    "register",
    "remove_native",
    "run",
]

Bytes: TypeAlias = npt.NDArray[np.uint8]
Callback: TypeAlias = Callable[[int, list[Bytes], list[Bytes], list[Shape]], Rest | None]
CarryOn: TypeAlias = Callable[[int, int, int, Bytes, Bytes, Shape], Rest]


# ---------------------------------------------------------------------------- what callers use


def load() -> ModuleType | None:
    """Return the module of the compiled operation, or None where there cannot be one. **Local.**

    Notes
    -----
    The first call of a process compiles or loads it. None without a word if
    ``MPISTRAT_TF_NATIVE=0``, else with a warning that says why.
    """
    # The first call compiles for seconds; functools.cache alone would let two threads do so.
    with _lock:
        return _load()


def has_workers() -> bool:
    """Whether the program has connected to remote workers, which cannot call this Python.

    There is no native operation there either, and every function that the program makes is sent to
    them, also what is never called there: **Local**.
    """
    names = [device.name for device in tf.config.list_logical_devices()]
    return any("/job:" in name and "/job:localhost/" not in name for name in names)


def register(callback: Callback, carry_on: CarryOn | None = None) -> None:
    """Set the callback of all operations in this process. **Local.**

    Parameters
    ----------
    callback
        Called with the key, and the memory of the inputs (read-only) and of the outputs as flat
        arrays of bytes, and their shapes. The memory is TensorFlow's own, and valid only until
        the call is over.
        It returns None, or what is left to do: a function that TensorFlow's threads need not wait
        for. A short call inside a ``tf.function`` begins on one of these threads, so what may
        last, such as a wait for other ranks, belongs into that function.

        It runs on any thread. UnknownKeyError becomes FailedPreconditionError, ValueError and
        TypeError InvalidArgumentError, CommunicationError AbortedError, and every other
        exception InternalError, each with its text.
    carry_on
        Called in its place for what a native function has begun (:func:`add_native`): with the
        key, the function's status, the number that it gave, the two arrays and their shape.
    """
    global _callback, _carry_on
    _callback, _carry_on = callback, carry_on


def add_native(key: int, function: int, state: int, kind: int) -> None:
    """Register a native function that begins calls of one tensor for `key`. **Local.**

    Parameters
    ----------
    key
        Of the calls.
    function
        Address of a MpistratTfNative (kernels/tf/call_op.h).
    state, kind
        What it is given; the memory must stay until :func:`remove_native` returns.
    """
    _library.mpistrat_tf_add_native(
        *(ctypes.c_int64(key), ctypes.c_void_p(function), ctypes.c_void_p(state)),
        ctypes.c_int64(kind),
    )


def remove_native(key: int) -> None:
    """Remove the native function of `key`, after it has returned. **Local.**"""
    _library.mpistrat_tf_remove_native(ctypes.c_int64(key))


def call(key: int, tensors: Sequence[Any]) -> list[Any]:
    """Run the callback on `tensors`, now or, inside a ``tf.function``, whenever the graph runs.

    Returns
    -------
    list of tf.Tensor
        As many, of the same dtypes and shapes, with what the callback wrote.

    Raises
    ------
    BackendUnavailableError
        There is no compiled operation here; see :func:`load`.
    tf.errors.OpError
        The callback raised something; inside a ``tf.function``, it is raised by that.
    """
    module = load()
    if module is None:
        raise BackendUnavailableError("the native TensorFlow operation is not available here")
    return run(module.mpistrat_call, key, tensors)


def run(operation: Callable[..., Any], key: int, tensors: Sequence[Any]) -> list[Any]:
    """Run an operation that hands `tensors` to Python; see :func:`call`."""
    # Eager code waits in any case, and only its own thread can see Ctrl-C.
    in_place = tf.executing_eagerly()
    operate = partial(foreign, operation) if in_place else operation
    try:
        results = operate(tensors, key=key, in_place=in_place)
    except tf.errors.CancelledError as error:
        # With `in_place` the callback ran on this thread, and left its exception here.
        raise left_interrupt() or error from None
    return list(results) if tensors else []


# What XLA runs is in this thread, too, where a signal's handler may have run in the callback.
translate_also(lambda error, function: interrupt_told_of(error.message))


# ----------------------------------------------------------------------- what the operation calls

_lock = threading.Lock()
_callback: Callback | None = None
_carry_on: CarryOn | None = None
_library: Any = None


def _started(this: CallSeen) -> Rest | None:
    if _callback is None:
        raise UnknownKeyError
    sizes = this.nbytes[: this.num]
    inputs = list(map(_view, this.inputs[: this.num], sizes))
    for array in inputs:
        # TensorFlow may share the memory of an input with other operations.
        array.flags.writeable = False
    outputs = list(map(_view, this.outputs[: this.num], sizes))
    shapes = shapes_of(this)
    if this.status == NOT_BEGUN or _carry_on is None:
        return _callback(this.key, inputs, outputs, shapes)
    return _carry_on(this.key, this.status, this.sequence, inputs[0], outputs[0], shapes[0])


# An array type of a fitting length would have to be made for each length, which takes 20 µs.
_Memory = ctypes.c_ubyte * (1 << 62)


def _view(address: int, nbytes: int) -> Bytes:
    memory: Any = _Memory.from_address(address)
    return np.frombuffer(memory, np.uint8, nbytes)


_begin, _finish = begin_by(_started), finish
_STEPS = (Step(_begin), Step(_finish))  # kept: the operation has their addresses


# -------------------------------------------------------------------------------------- loading


@functools.cache
def _load() -> ModuleType | None:
    found = native_library.operations()
    if found is None:
        return None
    global _library
    module, _library = found
    # Before any operation is made: call_op.h reads these without a lock.
    _library.mpistrat_tf_register(*_STEPS, ctypes.c_int64(built_in_sizes.TF_INLINE_BYTES))
    return module
