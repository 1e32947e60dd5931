"""Slices whose programs cannot call the host, as TPUs': they are combined on the host only.

A TPU's program cannot wait for MPI. So sums over the slices are made outside of ``run``: it
returns gradients, ``reduce`` sums them over the replicas of all slices, and a second ``run``
applies them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError
from mpistrat.tensorflow.private import api as private_api
from mpistrat.tensorflow.private import tpu_data as private_tpu_data
from mpistrat.tensorflow.strategies.base import agree
from mpistrat.tensorflow.wrapped_strategy.base import WrappedStrategy
from mpistrat.tensorflow.wrapped_strategy.host_bridge import HostBridge
from mpistrat.tensorflow.wrapped_strategy.mixin import join
from mpistrat.tensorflow.wrapped_strategy.tpu_slice_extended import TPUSliceExtended

__all__ = ["TPUSlice"]

_SUM, _MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN


class _OneRankBridge(HostBridge):
    """The bridge of a rank that alone has a TPU."""

    size, rank = 1, 0


class TPUSlice(WrappedStrategy):
    """One TPU strategy on each rank; with one rank, TensorFlow's alone.

    Parameters
    ----------
    tf_strategy
        A tf.distribute.TPUStrategy in which nothing was made yet.
    communicator
        Between the slices, or between the ranks of which this one alone has the TPU.
    is_alone
        Whether it has.

    Raises
    ------
    UsageError
        On all ranks: they have unequal numbers of replicas.
    """

    def __init__(
        self,
        tf_strategy: tf.distribute.Strategy,
        communicator: Communicator,
        is_alone: bool = False,
    ) -> None:
        super().__init__(tf_strategy, communicator)
        self._bridge = (_OneRankBridge if is_alone else HostBridge)(communicator)
        self._count = int(tf_strategy.num_replicas_in_sync)
        if self._bridge.size > 1:
            # Before the machinery is changed: `agree` raises on all ranks.
            agree(communicator, [f"TPU:{i}" for i in range(self._count)])
            tf_strategy.extended.bridge = self._bridge
            # What TensorFlow calls by itself, as when a variable is read, then is of all slices,
            # too.
            join(tf_strategy.extended, TPUSliceExtended)

    @property
    def num_replicas(self) -> int:
        """Number of replicas of all slices."""
        return self._count * self._bridge.size

    # ----------------------------------------------------------------------------- reductions

    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Combine the values of all slices on the host. **Collective.**

        TensorFlow would run a program for `axis`; here the host sums rows, of any lengths.
        """
        self.require_open()
        with self.translation.of("reduce"):
            name = reduce_op.upper() if isinstance(reduce_op, str) else reduce_op
            op = tf.distribute.ReduceOp(name)
            results = self._reduced(op, tf.nest.flatten(value), axis)
            return tf.nest.pack_sequence_as(value, results)

    def _reduced(self, op: Any, values: list[Any], axis: Any) -> list[tf.Tensor]:
        """Reduce values by one collective."""
        is_one = self._bridge.size == 1
        if axis is None and not is_one:
            # The machinery is that of all slices here (`TPUSliceExtended`), and combines them.
            found: list[Any] = self.tf_strategy.reduce(op, values, axis=None)
            return found
        if axis is None and op == _MEAN and any(map(private_api.is_mirrored, values)):
            return [self.tf_strategy.reduce(op, value, axis=None) for value in values]
        # The collectives read the host's memory, and TPUs do nothing eagerly.
        with tf.device("CPU:0"):
            with self._checking():
                mine = [self._local_sum(value, axis) for value in values]
            totals, counts = [total for total, _ in mine], [count for _, count in mine]
            if op == _SUM:
                return self._bridge.all_reduce(totals)
            # One collective has the counts, too: slices may have unequal numbers of rows.
            sums = self._bridge.all_reduce([*totals, *counts], "sum of a mean")
            pairs = zip(sums[: len(values)], sums[len(values) :], strict=True)
            return [total / tf.cast(count, total.dtype) for total, count in pairs]

    def _checking(self) -> AbstractContextManager[Any]:
        """Tell the other slices of an error here, before they wait; if there are any."""
        return self.communicator.checking() if self._bridge.size > 1 else nullcontext()

    def _local_sum(self, value: Any, axis: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the sum of this slice, and of how many values or rows it is."""
        if axis is None:  # it is the only slice
            total = self.tf_strategy.reduce(_SUM, value, axis=None)
            return total, tf.constant(self._count, tf.int64)
        values = self.tf_strategy.experimental_local_results(value)
        # A bare value stands for that of each replica.
        if not isinstance(value, tf.distribute.DistributedValues):
            values = values * self._count
        sums = [tf.reduce_sum(one, axis=axis) for one in values]
        return tf.add_n(sums), tf.add_n([_count(one, axis) for one in values])

    def gather(self, value: Any, axis: int) -> Any:
        """Put the values of all slices side by side, in the order of the ranks. **Collective.**"""
        return tf.nest.map_structure(lambda one: super(TPUSlice, self).gather(one, axis), value)

    # ---------------------------------------------------------------------------------- input

    def distribute_dataset(self, dataset: Any, options: Any) -> Any:
        """Give each replica of each slice its share; its hosts are as those of one TPU."""
        if self._bridge.size == 1:
            return super().distribute_dataset(dataset, options)
        self.require_open()
        _check_options(options)
        workers, slices = self._workers(options), (self._bridge.rank, self._bridge.size)
        with self.translation.of("experimental_distribute_dataset"):
            return self._of_one_kind(
                private_tpu_data.slice_of_dataset(
                    dataset, self.tf_strategy, options, slices, workers
                )
            )

    def datasets_from_function(self, dataset_fn: Callable[..., Any], options: Any) -> Any:
        """Have each host of each slice make a dataset."""
        if self._bridge.size == 1:
            return super().datasets_from_function(dataset_fn, options)
        self.require_open()
        _check_options(options)
        workers = self._workers(options)
        with self.translation.of("distribute_datasets_from_function", has_functions=True):
            made = private_api.datasets_from_function(
                dataset_fn, workers, self._contexts(workers.num_workers), self.tf_strategy, options
            )
        return self._of_one_kind(made)

    def _workers(self, options: Any) -> Any:
        """Return the hosts of this slice, whose data ends together with that of the others."""
        return private_tpu_data.slice_workers(
            self.tf_strategy,
            options,
            self.num_replicas,
            lambda count: self._bridge.all_reduce([count])[0],
        )

    def _of_one_kind(self, distributed: Any) -> Any:
        """Return a dataset; or raise on all ranks if the slices' could not end together."""
        kinds = self.communicator.allgather_object(private_tpu_data.kind_of_slice(distributed))
        if len(set(kinds)) > 1:
            raise UsageError(
                f"datasets of TPU slices by rank: {kinds}; expected the same on all, which can end"
                " together: repeat() on all or on none, and batch(..., drop_remainder=True) on all"
                " or on none"
            )
        return distributed

    def _contexts(self, hosts: int) -> list[tf.distribute.InputContext]:
        first = self._bridge.rank * hosts
        return [
            tf.distribute.InputContext(self._bridge.size * hosts, first + i, self.num_replicas)
            for i in range(hosts)
        ]

    def values_from_function(self, value_fn: Callable[..., Any]) -> Any:
        """Have each replica's value made; ids count the replicas of all slices."""
        self.require_open()
        first = self._bridge.rank * self._count
        contexts = (
            tf.distribute.experimental.ValueContext(first + local, self.num_replicas)
            for local in range(self._count)
        )
        with self.translation.of("values from a function", has_functions=True):
            return private_api.always_wrapped([value_fn(context) for context in contexts])


def _count(value: tf.Tensor, axis: Any) -> tf.Tensor:
    """Return how many numbers a sum along `axis`, one or several, adds for each of its results."""
    # Not by the sizes of both: other axes may be empty.
    axes = tf.cast(tf.reshape(axis, [-1]), tf.int32) % tf.rank(value)  # of any integer dtype
    return tf.reduce_prod(tf.gather(tf.shape(value, tf.int64), axes))


def _check_options(options: Any) -> None:
    per_replica = tf.distribute.InputReplicationMode.PER_REPLICA
    if options is not None and options.experimental_replication_mode == per_replica:
        raise NotImplementedError(
            "InputReplicationMode.PER_REPLICA with TPUs, which TensorFlow has for"
            " MirroredStrategy only; use PER_WORKER: one dataset for each host"
        )
