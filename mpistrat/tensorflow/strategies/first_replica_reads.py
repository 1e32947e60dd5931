"""`ONLY_FIRST_REPLICA` variables: each replica has its own value; reads give rank 0's first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.private import api as private_api

__all__ = ["FirstOfAll", "OfRank0", "read_alike"]


class OfRank0:
    """Mixin of ``ON_READ`` variables with ``ONLY_FIRST_REPLICA``: all ranks read rank 0's value.

    It stands before a class of TensorFlow's, which would give each rank its own first replica's
    value. Reading it across replicas is **Collective**.
    """

    _distribute_strategy: Any
    _get_replica: Callable[[int], Any]

    def _get_cross_replica(self) -> tf.Tensor:
        mine = tf.convert_to_tensor(self._get_replica(0))
        return self._distribute_strategy.extended.bridge.broadcast_value(mine)

    def value(self) -> tf.Tensor:
        """Return rank 0's first value, or in a replica its own."""
        if private_api.reads_across_replicas(self._distribute_strategy):
            return self._get_cross_replica()
        return super().value()  # type: ignore[misc]


class FirstOfAll(OfRank0, private_api.SyncOnReadVariable):  # type: ignore[misc]
    """An ``ONLY_FIRST_REPLICA`` variable of a mirrored strategy."""


def read_alike(variable: Any) -> Any:
    """Give an ``ONLY_FIRST_REPLICA`` variable the class that reads rank 0's value. **Local.**"""
    is_on_read = isinstance(variable, private_api.SyncOnReadVariable)
    if is_on_read and variable.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA:
        # TensorFlow chooses the class by the synchronization alone. The object stays, since
        # TensorFlow may refer to it by now.
        variable.__class__ = FirstOfAll
    return variable
