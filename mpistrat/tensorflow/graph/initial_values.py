"""Choose the first value of a new variable: rank 0's on all ranks, or this rank's own.

While one rank saves, Keras and TensorFlow make variables of their own: a counter of saves, or an
optimizer to look at its attributes. The other ranks make none then, and so cannot take part; the
values are constants, which all ranks have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.graph.bridge import Bridge
from mpistrat.tensorflow.graph.same_variables.variable_order import name_of
from mpistrat.tensorflow.private import api as private_api

__all__ = ["first_value", "is_alone", "made_alone"]


class _Local(threading.local):
    is_alone = False


_local = _Local()


def made_alone(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function whose variables start with each rank's own value."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        # By thread: another one may make variables with all ranks meanwhile.
        before, _local.is_alone = _local.is_alone, True
        try:
            return original(*args, **kwargs)
        finally:
            _local.is_alone = before

    return call


def is_alone() -> bool:
    """Whether this rank makes variables without the others now. **Local.**"""
    return _local.is_alone


def first_value(
    bridge: Bridge, initial_value: Any, dtype: Any, device: str, name: str | None = None
) -> Callable[[], tf.Tensor]:
    """Return an initializer that gives rank 0's value on all ranks. **Local.**

    The initializer is **Collective**, unless the variable is made in a function of `made_alone`.
    The `name` of the variable is compared over the ranks (variable_order.py).
    """
    # Here, where the variable is made: the value may be asked for later.
    compared = name_of(name)

    def value() -> tf.Tensor:
        found = initial_value() if callable(initial_value) else initial_value
        with tf.device(device):
            # Restoring may come before a variable is made: its value then is the checkpoint's.
            mine = tf.convert_to_tensor(private_api.checkpointed_value(found), dtype=dtype)
            if _local.is_alone:
                return mine
            # On all ranks where the variable is, also a value that came from elsewhere.
            sent = tf.identity(mine) if bridge.uses_gpus else mine
            return bridge.broadcast_first(sent, compared)

    return value


private_api.wrap_save_counters(made_alone)
