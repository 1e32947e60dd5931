"""Add to Keras's counters atomically where several workers count at the same time.

Keras adds by reading, adding and assigning, so that of two workers one may be lost: metrics would
see too few rows, and an optimizer too few steps. TensorFlow's ``assign_add`` is atomic on a
server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.own_strategies import has_servers
from mpistrat.tensorflow.private import api as private_api

__all__ = ["made_atomic"]


def made_atomic(name: str, is_stateless: Callable[[], bool]) -> Callable[[Any], Any]:
    """Return a wrapper of the method `name` of Keras's variables that calls TensorFlow's.

    Only where `ParameterServerStrategy` is the current one, and not while `is_stateless` says that
    Keras only tries what a function would do.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def assign(self: Any, value: Any) -> Any:
            variable = self._value
            if is_stateless() or not (
                has_servers(tf.distribute.get_strategy()) and private_api.is_one_resource(variable)
            ):
                return original(self, value)
            change = tf.cast(tf.convert_to_tensor(value), variable.dtype)
            return getattr(variable, name)(tf.broadcast_to(change, variable.shape))

        return assign

    return wrap
