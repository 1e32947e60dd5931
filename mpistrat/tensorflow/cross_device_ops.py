"""Combine the replicas' values: first those of this rank, then over the ranks by MPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow import private_api
from mpistrat.tensorflow.bridge import Bridge

__all__ = ["RankAllReduce"]

Pairs = Sequence[tuple[Any, Any]]


class RankAllReduce(tf.distribute.CrossDeviceOps):  # type: ignore[misc]
    """Sums and means over the devices of this rank, and over all ranks.

    Parameters
    ----------
    bridge
        The collectives between ranks.
    local
        How values are combined over the devices of this rank; None for sums on the host.
    """

    def __init__(
        self,
        bridge: Bridge,
        local: tf.distribute.CrossDeviceOps | None = None,
    ) -> None:
        super().__init__()
        self._bridge = bridge
        self._local = local

    @property
    def _num_between_graph_workers(self) -> int:
        return self._bridge.size

    def reduce_implementation(
        self, reduce_op: Any, per_replica_value: Any, destinations: Any, options: Any
    ) -> Any:
        """Reduce a batch of one."""
        pair = (per_replica_value, destinations)
        return self.batch_reduce_implementation(reduce_op, [pair], options)[0]

    def batch_reduce_implementation(
        self, reduce_op: Any, value_destination_pairs: Pairs, options: Any
    ) -> list[Any]:
        """Reduce tensors packed into few messages, and IndexedSlices as rows."""
        bridge = self._bridge.under(options)
        with tf.device("CPU:0"):
            with bridge.communicator.checking():
                local = [self._local_sum(value, options) for value, _ in value_destination_pairs]
            dense = [i for i, value in enumerate(local) if not _is_sparse(value)]
            found = bridge.all_reduce([local[i] for i in dense])
            totals = dict(zip(dense, found, strict=True))
            results = [
                totals[i] if i in totals else _all_rows(bridge, value)
                for i, value in enumerate(local)
            ]
            if reduce_op == tf.distribute.ReduceOp.MEAN:
                numbers = [self._number(value) for value, _ in value_destination_pairs]
                results = [
                    private_api.divided(*pair) for pair in zip(results, numbers, strict=True)
                ]
        places = [place for _, place in value_destination_pairs]
        return [private_api.placed(*pair) for pair in zip(results, places, strict=True)]

    def _number(self, value: Any) -> int:
        """Return how many values there are on all ranks; of what was bare there is one each."""
        return len(value.values) * self._bridge.size

    def _local_sum(self, value: Any, options: Any) -> Any:
        if len(value.values) == 1:
            return value.values[0]
        if self._local is None:
            return private_api.summed(value.values)
        total = self._local.reduce(tf.distribute.ReduceOp.SUM, value, value, options)
        return total.values[0] if isinstance(total, tf.distribute.DistributedValues) else total

    def broadcast_implementation(self, tensor: Any, destinations: Any) -> Any:
        """Copy to the devices of this rank."""
        return private_api.placed(tensor, destinations)

    def _gather_implementation(
        self, per_replica_value: Any, destinations: Any, axis: int, options: Any
    ) -> Any:
        with tf.device("CPU:0"):
            with self._bridge.communicator.checking():
                mine = _concatenated(per_replica_value.values, axis)
            result = self._bridge.under(options).all_gather(mine, axis)
        return private_api.placed(result, destinations)


def _all_rows(bridge: Bridge, slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """Return the rows of all ranks; equal indices stand for sums."""
    values = bridge.all_gather(slices.values)
    indices = bridge.all_gather(slices.indices)
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def _concatenated(values: Sequence[Any], axis: int) -> tf.Tensor:
    """Return the values of this rank end to end, if they can be gathered at all."""
    for value in values:
        if _is_sparse(value):
            raise NotImplementedError(
                "gather of tf.IndexedSlices; expected tensors, such as tf.convert_to_tensor(value)"
            )
        if value.shape.rank is not None and axis not in range(value.shape.rank):
            raise UsageError(
                f"gather along axis={axis} of a tensor of shape {value.shape}; expected a tensor"
                " with at least one dimension, and an axis from 0 to its last"
            )
    return tf.concat(values, axis)


def _is_sparse(value: Any) -> bool:
    return isinstance(value, tf.IndexedSlices)
