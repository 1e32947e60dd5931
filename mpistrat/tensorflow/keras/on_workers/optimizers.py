"""Use Keras's optimizers in functions that are scheduled on workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.errors import ContextError
from mpistrat.tensorflow.own_strategies import has_servers

__all__ = ["beside_variable", "in_replica"]


def beside_variable(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make what an optimizer keeps of a variable on the ps of the variable.

    A function that makes it, at the optimizer's first step, is in no scope, whose variables the
    strategy places: it would be the chief's, and each step of a worker would go there.
    """

    def add(self: Any, reference_variable: Any, *args: Any, **kwargs: Any) -> Any:
        is_traced = tf.inside_function() and has_servers(self._distribution_strategy)
        if not is_traced:
            return original(self, reference_variable, *args, **kwargs)
        is_keras_own = not isinstance(reference_variable, tf.Variable)
        variable = reference_variable.value if is_keras_own else reference_variable
        # The device within the scope: Keras leaves the function by one of its own, and this device
        # with it, if that is the first.
        with tf.init_scope(), tf.device(variable.device):
            return original(self, reference_variable, *args, **kwargs)

    return add


def in_replica(original: Callable[..., Any]) -> Callable[..., Any]:
    """Raise where an optimizer's step is in a function without ``strategy.run``."""

    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_on_servers = has_servers(tf.distribute.get_strategy())
        if is_on_servers and tf.distribute.get_replica_context() is None:
            raise ContextError(
                "a step of a Keras optimizer outside of strategy.run under"
                " ParameterServerStrategy; in the function that is scheduled call"
                " strategy.run(step), in which optimizer.apply_gradients is"
            )
        return original(self, *args, **kwargs)

    return update
