"""Use Keras's optimizers in functions that are scheduled on workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.errors import ContextError, UsageError
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
        # The device is set inside of the scope: Keras enters an init_scope of its own, which would
        # drop a device that was set outside.
        with tf.init_scope(), tf.device(variable.device):
            return original(self, reference_variable, *args, **kwargs)

    return add


def in_replica(original: Callable[..., Any]) -> Callable[..., Any]:
    """Raise where an optimizer's step is in a function without ``strategy.run``.

    Also where several workers would accumulate gradients, which is no atomic step.
    """

    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = tf.distribute.get_strategy()
        is_on_servers = has_servers(strategy)
        if is_on_servers and tf.distribute.get_replica_context() is None:
            raise ContextError(
                "a step of a Keras optimizer outside of strategy.run under"
                " ParameterServerStrategy; move apply_gradients into a function of its own, and"
                " call strategy.run(that function) in the function that is scheduled"
            )
        if is_on_servers and self.gradient_accumulation_steps and strategy.tasks.num_workers > 1:
            raise UsageError(
                f"gradient_accumulation_steps={self.gradient_accumulation_steps} with"
                f" {strategy.tasks.num_workers} workers of parameter servers, which would lose"
                " gradients: one may reset the sum that another adds to; use one worker, or larger"
                " batches, or add gradients up in the function that is scheduled"
            )
        return original(self, *args, **kwargs)

    return apply
