"""Enter the scope of a model's strategy in Keras's ``compile``, which makes metrics.

``compile`` makes the variables of the loss's mean, and a program may call it outside of the scope
that the model was made in. In one process all replicas update the same variables anyway. Over
ranks each rank would have its own, and ``evaluate`` would return a loss of its own rows only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow.own_strategies import is_over_ranks

__all__ = ["compiled_in_scope"]


def compiled_in_scope(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Model.compile``: for strategies over ranks it enters the model's scope. **Local.**"""

    def compile_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self.distribute_strategy
        if not is_over_ranks(strategy):
            return original(self, *args, **kwargs)
        with strategy.communicator.checking():
            # `metrics` and `weighted_metrics` are the fourth and fifth argument of `compile`.
            _check_metrics(tf.nest.flatten([args[3:5], kwargs]))
        with strategy.scope():
            return original(self, *args, **kwargs)

    return compile_model


def _check_metrics(given: list[Any]) -> None:
    """Raise if a metric counts for this rank alone."""
    kind = sys.modules["keras.src.metrics.metric"].Metric
    for metric in (one for one in given if isinstance(one, kind)):
        for variable in metric.variables:
            if not isinstance(variable._value, tf.distribute.DistributedValues):
                raise UsageError(
                    f"metric {metric.name!r} was made outside of the strategy's scope, so each"
                    " rank would count its own rows only; make it in the scope, or give its name"
                )
