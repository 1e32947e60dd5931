"""Read variables that differ by replica alike on all ranks, over all slices.

Keras's metrics are such. A mean needs nothing of its own: reading it reduces over all slices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.private import api as private_api
from mpistrat.tensorflow.strategies.first_replica_reads import OfRank0
from mpistrat.tensorflow.wrapped_strategy.mixin import join

__all__ = ["read_over_slices"]


def read_over_slices(variable: Any) -> Any:
    """Return a variable that is being made; all slices will read the same of it. **Local.**"""
    if variable.synchronization == tf.VariableSynchronization.ON_READ:
        if variable.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA:
            join(variable, OfRank0)
        elif variable.aggregation == tf.VariableAggregation.SUM:
            join(variable, _SumOfSlices)
    return variable


class _SumOfSlices:
    """Stands before a variable of TensorFlow's that is read as the sum of its replicas.

    TensorFlow shares what is assigned to the sum out over the replicas of one slice; here each
    slice has its share of that.
    """

    _distribute_strategy: Any

    def _share(self, value: Any) -> Any:
        return value / self._distribute_strategy.extended.bridge.size

    def assign(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        """See tf.Variable; outside of replicas this assigns the sum. **Collective** there."""
        if private_api.reads_across_replicas(self._distribute_strategy):
            value = self._share(value)
        return super().assign(value, *args, **kwargs)  # type: ignore[misc]

    def _gather_saveables_for_checkpoint(self) -> dict[str, Callable[..., Any]]:
        made = super()._gather_saveables_for_checkpoint()  # type: ignore[misc]
        return {key: self._restores_share(make) for key, make in made.items()}

    def _restores_share(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def factory(*args: Any, **kwargs: Any) -> Any:
            saveable = make(*args, **kwargs)
            restore = saveable.restore

            def restored(restored_tensors: Any, restored_shapes: Any) -> Any:  # by these names
                return restore(list(map(self._share, restored_tensors)), restored_shapes)

            saveable.restore = restored
            return saveable

        return factory
