"""Members of TensorFlow's ``StrategyExtended`` that differ with replicas on several ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.data import dataset_parts, sharding, shuffle_check
from mpistrat.tensorflow.data.pipelines import made_untuned, untuned
from mpistrat.tensorflow.graph.bridge import Bridge
from mpistrat.tensorflow.graph.cross_device_ops import RankAllReduce
from mpistrat.tensorflow.graph.initial_values import is_alone
from mpistrat.tensorflow.graph.same_variables.variable_order import name_of
from mpistrat.tensorflow.graph.trace_once import Lifted, is_lifted
from mpistrat.tensorflow.keras import row_weights
from mpistrat.tensorflow.keras.layer_statistics import averaged
from mpistrat.tensorflow.private import api as private_api
from mpistrat.tensorflow.private import data as private_data
from mpistrat.tensorflow.strategies.replica_context import RankReplicaContext

__all__ = ["OverRanks"]


# The only options with which TensorFlow 2.21 makes a plain iterator in place of one for several
# devices (input_lib._should_use_multi_device_iterator).
_IN_PLACE = tf.distribute.InputOptions(
    experimental_fetch_to_device=False,
    experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
)


class OverRanks:
    """Mixin that extends a one-process StrategyExtended to all ranks; inherit it first.

    Attributes
    ----------
    bridge
        The collectives between ranks; to be set before anything else.
    worker_devices
        This rank's devices, from the class that is made to be of all ranks.
    """

    bridge: Bridge
    worker_devices: tuple[str, ...]
    _cross_device_ops: RankAllReduce
    _container_strategy: Callable[[], tf.distribute.Strategy]
    _input_workers_with_options: Callable[..., Any]
    _input_workers: Any

    # ------------------------------------------------------------------------------ who am I

    @property
    def _num_local(self) -> int:
        return len(self.worker_devices)

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._num_local * self.bridge.size

    def _get_replica_id_in_sync_group(self, replica_id: int) -> int:
        return self.bridge.rank * self._num_local + replica_id

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        return replica_id_in_sync_group - self.bridge.rank * self._num_local

    def _in_multi_worker_mode(self) -> bool:
        # TensorFlow's iterators then ask all ranks in each step who has data left (`_reduce_to`),
        # and give empty batches to those who have none.
        return self.bridge.size > 1

    @property
    def experimental_between_graph(self) -> bool:
        """Whether each rank builds graphs of its own."""
        return self.bridge.size > 1

    @property
    def should_checkpoint(self) -> bool:
        """Whether this rank is the one that saves."""
        return self.bridge.rank == 0

    @property
    def should_save_summary(self) -> bool:
        """Whether this rank is the one that writes summaries."""
        return self.bridge.rank == 0

    def name_task(self) -> None:
        """Set this rank's task in the attributes of TensorFlow's multi-worker strategy.

        Libraries read them, such as KerasTuner for the names of temporary folders. **Local.**
        """
        self._task_type, self._task_id = "worker", self.bridge.rank
        self._num_devices_per_worker = self._num_local

    # ----------------------------------------------------------------------------------- run

    def _call_for_each_replica(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call `fn` for each local replica: in this thread if there is one, else in turn."""
        if self._num_local > 1 and is_lifted(fn, self.worker_devices):
            return self._lifted.of(fn)(*args, **kwargs)
        return self._call_replicas(fn, args, kwargs)

    @cached_property
    def _lifted(self) -> Lifted:
        return Lifted(self._call_replicas)

    def _call_replicas(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        def call(*own: Any, **own_kwargs: Any) -> Any:
            # In this order: when `averaged` ends it asks for the share of the batch's rows.
            with row_weights.of_batch(own), averaged():
                return fn(*own, **own_kwargs)

        if self._num_local > 1:
            return super()._call_for_each_replica(call, args, kwargs)  # type: ignore[misc]
        # A single replica runs in this thread. MirroredExtended starts a thread for each.
        with (
            RankReplicaContext(self._container_strategy(), self.bridge.rank),
            tf.device(self.worker_devices[0]),
        ):
            return call(*private_api.of_replica(0, args), **private_api.of_replica(0, kwargs))

    # ----------------------------------------------------------------------------- variables

    def number(self, variable: Any, name: str | None) -> None:
        """Give a new variable the number by which its gradients are compared. **Local.**"""
        if self.bridge.size > 1 and not is_alone():
            self.bridge.numbers.assign(variable, name_of(name))

    def _broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        """Return the value of rank 0's first replica; Python numbers are taken to be equal."""
        if isinstance(tensor, (float, int)) or self.bridge.size == 1:
            return super()._broadcast_to(tensor, destinations)  # type: ignore[misc]
        # TensorFlow copies to this rank's devices, so it has to copy rank 0's value.
        told = self.bridge.broadcast_value(tensor)
        return super()._broadcast_to(told, destinations)  # type: ignore[misc]

    # --------------------------------------------------------------------------------- input

    def _input_context(self) -> tf.distribute.InputContext:
        return tf.distribute.InputContext(
            num_input_pipelines=self.bridge.size,
            input_pipeline_id=self.bridge.rank,
            num_replicas_in_sync=self._num_replicas_in_sync,
        )

    def _experimental_distribute_dataset(self, dataset: Any, options: Any) -> Any:
        _refuse_per_replica(options)

        iterators = self._iterators(options)

        def make(mended: Any) -> Any:
            found = private_api.distributed_dataset(
                untuned(mended),
                self._input_workers_with_options(iterators),
                self._container_strategy(),
                num_replicas_in_sync=self._num_replicas_in_sync,
                input_context=self._input_context(),
                options=iterators,
            )
            if iterators is _IN_PLACE:  # others prefetch by themselves
                own = private_data.own_dataset(found)
                private_data.replace_own_dataset(found, untuned(own.prefetch(1)))
            return found

        return sharding.divided(dataset, make, self.bridge.communicator)

    def _iterators(self, options: Any) -> Any:
        """Return `options`, or options for iterators that copy nothing to a device.

        On one device with this host's memory nothing has to be copied, and iterators for several
        devices take 50 ms to make. All data sets of a strategy have iterators of one kind: what
        was traced for one kind fails with the other (TensorFlow 2.21 does not tell them apart).
        """
        is_host = self._num_local == 1 and "CPU" in self.worker_devices[0]
        return _IN_PLACE if is_host else options

    def _distribute_datasets_from_function(
        self, dataset_fn: Callable[[tf.distribute.InputContext], Any], options: Any
    ) -> Any:
        if self.bridge.size > 1:
            _refuse_per_replica(options)
        iterators = self._iterators(options)
        return private_api.datasets_from_function(
            made_untuned(dataset_fn, prefetches=iterators is _IN_PLACE),
            self._input_workers_with_options(iterators),
            [self._input_context()],
            self._container_strategy(),
            iterators,
        )

    def distribute_prefetched(self, dataset: tf.data.Dataset) -> Any:
        """Return a distributed dataset of each rank's own dataset, which prefetches by itself."""
        options = self._iterators(None)
        return private_api.datasets_from_function(
            lambda _: untuned(dataset),
            self._input_workers_with_options(options),
            [self._input_context()],
            self._container_strategy(),
            options,
        )

    def _experimental_distribute_values_from_function(self, value_fn: Callable[[Any], Any]) -> Any:
        contexts = (
            tf.distribute.experimental.ValueContext(
                self._get_replica_id_in_sync_group(local), self._num_replicas_in_sync
            )
            for local in range(self._num_local)
        )
        return private_api.always_wrapped([value_fn(context) for context in contexts])

    def _make_dataset_iterator(self, dataset: Any) -> Any:
        if self.bridge.size > 1:
            by_rows = not dataset_parts.reads_files(dataset)
            shuffle_check.check_order(dataset, self.bridge.communicator, by_rows)
        return private_api.DatasetIterator(
            untuned(dataset),
            self._input_workers,
            self._container_strategy(),
            num_replicas_in_sync=self._num_replicas_in_sync,
            input_context=self._input_context(),
        )

    def _make_input_fn_iterator(self, input_fn: Any, replication_mode: Any = None) -> Any:
        return private_api.InputFunctionIterator(
            input_fn, self._input_workers, [self._input_context()], self._container_strategy()
        )

    # ----------------------------------------------------------------------------- reductions

    def _is_of_no_rank(self, value: Any) -> bool:
        """Whether a value stands for all replicas; on several ranks a bare one is the rank's."""
        return self.bridge.size == 1 and not isinstance(value, tf.distribute.DistributedValues)

    def _get_cross_device_ops(self, value: Any) -> Any:
        return self._cross_device_ops

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        self.bridge.require_open()

        def reduce(one: Any) -> Any:
            # Equal on all replicas of all ranks, so its mean needs no message.
            if private_api.is_mirrored(one) and reduce_op == tf.distribute.ReduceOp.MEAN:
                return one
            if self._is_of_no_rank(one):
                return private_api.reduced_bare_value(
                    reduce_op, one, destinations, self._num_local
                )
            place = self._place(destinations)
            return self._cross_device_ops.of(one, place).reduce(reduce_op, one, place, options)

        return tf.nest.map_structure(reduce, value)

    def _gather_to_implementation(
        self, value: Any, destinations: Any, axis: int, options: Any
    ) -> Any:
        self.bridge.require_open()
        if self._is_of_no_rank(value):
            return value
        return self._cross_device_ops._gather(value, self._place(destinations), axis, options)

    def _batch_reduce_to(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        pairs = [(value, self._place(where)) for value, where in value_destination_pairs]
        return self._cross_device_ops.batch_reduce(reduce_op, pairs, options)

    def _place(self, destinations: Any) -> Any:
        """Return `destinations`, resolved where a graph's tensors have no device yet."""
        is_named = isinstance(destinations, str)
        if is_named or isinstance(destinations, (tf.Tensor, tf.IndexedSlices)):
            name = destinations if is_named else destinations.device
            return name or self.worker_devices[0]
        return destinations


def _refuse_per_replica(options: tf.distribute.InputOptions | None) -> None:
    mode = tf.distribute.InputReplicationMode.PER_REPLICA
    if options is not None and options.experimental_replication_mode == mode:
        raise NotImplementedError(
            "InputReplicationMode.PER_REPLICA is only supported in"
            " distribute_datasets_from_function of one rank with several devices"
        )
