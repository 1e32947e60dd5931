"""Hook assignments to Keras's variables: note statistics, refuse metrics of one rank alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow.errors import of_both
from mpistrat.tensorflow.keras import layer_statistics
from mpistrat.tensorflow.own_strategies import is_over_ranks, our_replica

__all__ = ["assigned"]


def assigned(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Variable._direct_assign``. **Local.**"""

    def assign(self: Any, *args: Any, **kwargs: Any) -> Any:
        _check_metric(self)
        layer_statistics.note_assignment(self._value)
        return original(self, *args, **kwargs)

    return assign


def _check_metric(variable: Any) -> None:
    """Raise if a replica counts in a metric that is this rank's alone."""
    is_metric = variable.synchronization == "on_read" and variable.aggregation == "sum"
    if not is_metric or isinstance(variable._value, tf.distribute.DistributedValues):
        return
    context = our_replica()
    if context is not None and is_over_ranks(context.strategy):
        error = UsageError(
            f"a replica counts in {variable.path!r}, a metric that was made outside of the"
            " strategy's scope, so each rank would count its own rows only; make the metric in the"
            " scope, or call its update_state outside of strategy.run, with what strategy.gather"
            " returns"
        )
        raise of_both(error) from error
