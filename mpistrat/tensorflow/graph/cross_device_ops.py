"""`RankAllReduce`: combine values over this rank's replicas, then over the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow.graph.bridge import OF_A_MEAN, Bridge
from mpistrat.tensorflow.graph.same_variables.gradient_order import OF_GRADIENTS, GradientList
from mpistrat.tensorflow.private import api as private_api

__all__ = ["RankAllReduce"]

Pairs = Sequence[tuple[Any, Any]]
_SUMS = {"mean": "sum of a mean"}  # of what the ranks cannot take a mean of


class RankAllReduce(tf.distribute.CrossDeviceOps):  # type: ignore[misc]
    """Sums and means over the devices of this rank, and over all ranks.

    Parameters
    ----------
    bridge
        The collectives between ranks.
    local
        How values are combined over the devices of this rank; None for sums on the host. An
        ``accumulation_fn`` of a ``ReductionToOneDevice`` gets the values of all ranks' replicas,
        as it gets those of all replicas in one process: they are gathered for it. It is not asked
        where TensorFlow does not ask it: for int32, and for results that go to a CPU alone.
    """

    def __init__(
        self,
        bridge: Bridge,
        local: tf.distribute.CrossDeviceOps | None = None,
    ) -> None:
        super().__init__()
        self._bridge = bridge
        self._local = local
        self._accumulates = bridge.size > 1 and _has_accumulation_fn(local)
        # The same over ranks, with sums of local values on the host.
        self._on_host = self if local is None else RankAllReduce(bridge)

    @property
    def _num_between_graph_workers(self) -> int:
        # With 1 TensorFlow would return a single local value as it is, without asking this class.
        return self._bridge.size

    def of(self, value: Any, destinations: Any) -> RankAllReduce:
        """Return the function that reduces a single value to `destinations`."""
        if self._local is None or not isinstance(value, tf.distribute.DistributedValues):
            return self._on_host
        return self._on_host if private_api.on_host(value, destinations) else self

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
        # What is on no GPU, and rows, are combined in the host's memory.
        with tf.device("CPU:0"):
            values = [value for value, _ in value_destination_pairs]
            is_mean = reduce_op == tf.distribute.ReduceOp.MEAN
            gradient_list = getattr(options, OF_GRADIENTS, None)
            how = "mean" if is_mean else "sum"
            results = self._reduced(bridge, values, options, how, gradient_list)
            if is_mean:
                results = list(map(self._divided, values, results))
        places = [place for _, place in value_destination_pairs]
        return [private_api.placed(*pair) for pair in zip(results, places, strict=True)]

    def _reduced(
        self,
        bridge: Bridge,
        values: Sequence[Any],
        options: Any,
        op: str,
        gradient_list: GradientList | None,
    ) -> list[Any]:
        """Return the sums of all values, or the ranks' means where the backend has them."""
        # A rank whose local sum fails tells the others in place of the collective below.
        with bridge.communicator.checking():
            local = [self._local_sum(value, options) for value in values]
        found: dict[int, Any] = {}
        gpus = list(map(self._gpu_of, values))
        # Dense values first, by place and kind, then rows: one order of collectives on all ranks.
        for gpu, kind in product(dict.fromkeys(gpus), (op, _SUMS[op]) if op in _SUMS else (op,)):
            members = [
                i
                for i, value in enumerate(values)
                if gpus[i] == gpu and self._how(value, op) == kind
            ]
            mine = [local[i] for i in members]
            part = gradient_list and gradient_list.part(members)
            if gpu is None:
                totals = bridge.all_reduce(mine, kind, part)
            else:
                totals = bridge.all_reduce_on_gpu(mine, kind, gpu, part)
            found.update(zip(members, totals, strict=True))
        return [
            found[i]
            if i in found
            else self._of_all_rows(bridge, rows, _made_for(op, gradient_list, i))
            for i, rows in enumerate(local)
        ]

    def _gpu_of(self, value: Any) -> str | None:
        """Return the GPU where a value is combined, its first replica's; None for the host.

        Rows, and values for a user's function, are gathered on the host.
        """
        if not self._bridge.uses_gpus or self._asks(value) or any(map(_is_sparse, value.values)):
            return None
        return self._bridge.place_of(value.values[0])

    def _on_its_gpu(self, value: Any) -> AbstractContextManager[Any]:
        gpu = self._gpu_of(value)
        return nullcontext() if gpu is None else tf.device(gpu)

    def _how(self, value: Any, op: str) -> str | None:
        """Return the ranks' op for a value; None if it is gathered.

        A mean is taken by the ranks, so that a rank that wants a sum is told; of integers it has
        another dtype, and is a sum that is divided here, which says so for the same reason.
        """
        # The user's function may be no sum, and rows differ in number: neither can be reduced.
        if self._asks(value) or any(map(_is_sparse, value.values)):
            return None
        return op if value.values[0].dtype.is_floating else _SUMS.get(op, op)

    def _divided(self, value: Any, result: Any) -> Any:
        """Divide a result by the number of its values, unless the ranks' mean has done so."""
        ranks = 1 if self._how(value, "mean") == "mean" else self._bridge.size
        number = len(value.values) * ranks
        with self._on_its_gpu(value):
            return result if number == 1 else private_api.divided(result, number)

    def _asks(self, value: Any) -> bool:
        """Whether the user's accumulation function combines the values of all ranks."""
        # TensorFlow keeps int32 in the host's memory, and sums it there, whatever function is
        # given.
        if not self._accumulates or _is_int32(value):
            return False
        return not any(map(_is_sparse, value.values))

    def _of_all_rows(self, bridge: Bridge, rows: Any, made_for: str | None) -> Any:
        """Return the slices of all replicas, or the user's function of their values."""
        if _is_sparse(rows):
            return _all_rows(bridge, rows, made_for)
        local: Any = self._local
        gathered = bridge.all_gather(rows, made_for=made_for)
        values = tf.unstack(gathered, rows.shape[0] * bridge.size)
        with tf.device(local.reduce_to_device or "CPU:0"):
            return local.accumulation_fn(values)

    def _local_sum(self, value: Any, options: Any) -> Any:
        """Return the sum on this rank, or its rows for a function of all rows."""
        if self._asks(value):
            return tf.stack(value.values)
        if len(value.values) == 1:
            return value.values[0]
        if self._local is None or _is_int32(value):
            with self._on_its_gpu(value):
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


def _made_for(op: str, gradient_list: GradientList | None, index: int) -> str | None:
    """Return what the rows with this index are gathered for."""
    if op == "mean":
        return OF_A_MEAN
    return None if gradient_list is None else gradient_list.part([index]).label


def _all_rows(bridge: Bridge, slices: tf.IndexedSlices, made_for: str | None) -> tf.IndexedSlices:
    """Gather the rows of all ranks; rows of equal indices add up."""
    values = bridge.all_gather(slices.values, made_for=made_for)
    indices = bridge.all_gather(slices.indices)
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def _concatenated(values: Sequence[Any], axis: int) -> tf.Tensor:
    """Concatenate the values of this rank; raise if they cannot be gathered."""
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


def _has_accumulation_fn(local: tf.distribute.CrossDeviceOps | None) -> bool:
    """Tell whether the user's accumulation function combines values; it may be no sum."""
    kind = tf.distribute.ReductionToOneDevice
    return isinstance(local, kind) and local.accumulation_fn is not kind().accumulation_fn


def _is_int32(value: Any) -> bool:
    return bool(getattr(value.values[0], "dtype", None) == tf.int32)


def _is_sparse(value: Any) -> bool:
    return isinstance(value, tf.IndexedSlices)
