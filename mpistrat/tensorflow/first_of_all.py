"""A variable whose replicas differ, and which is read as the first replica's of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from mpistrat.tensorflow import private_api

__all__ = ["FirstOfAll", "read_alike"]


class FirstOfAll(private_api.SyncOnReadVariable):  # type: ignore[misc]
    """What ``ON_READ`` with ``ONLY_FIRST_REPLICA`` is on several ranks: equal on all of them.

    TensorFlow's would give each rank its own first replica's value. Reading it across replicas is
    **Collective**.
    """

    def _get_cross_replica(self) -> tf.Tensor:
        mine = tf.convert_to_tensor(self._get_replica(0))
        return self._distribute_strategy.extended.bridge.broadcast(mine, is_new=False)

    def value(self) -> tf.Tensor:
        """Return rank 0's first value, or in a replica its own."""
        if private_api.reads_across_replicas(self._distribute_strategy):
            return self._get_cross_replica()
        return super().value()


def read_alike(variable: Any) -> Any:
    """Return a variable that is being made; all ranks will read the same of it. **Local.**"""
    is_on_read = isinstance(variable, private_api.SyncOnReadVariable)
    if is_on_read and variable.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA:
        variable.__class__ = FirstOfAll
    return variable
