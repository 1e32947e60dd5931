"""TensorFlow's private modules for datasets of TPU slices; see `api`.

Slices end together as the hosts of one TPU do, of which TensorFlow asks all whether they have a
batch: batches of any length go on till nobody has one, and hosts that have none left get some of
no rows; where all batches have one shape, as programs of TPUs like it, all end with the first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.private.api import load

__all__ = ["kind_of_slice", "slice_of_dataset", "slice_workers"]

_modules = load(
    {
        "data.experimental.ops.distribute": ("replicate",),
        "distribute.input_lib": (
            "DistributedDataset",
            "DistributedIteratorBase",
            "InputWorkers",
            "_calculate_replicas_with_values",
            "_create_per_replica",
            "_get_value_or_dummy",
        ),
        "distribute.input_ops": ("auto_shard_dataset",),
    }
)
_lib: Any = _modules["distribute.input_lib"]
_ENDLESS = tf.data.INFINITE_CARDINALITY


class _SliceWorkers(_lib.InputWorkers):  # type: ignore[misc]
    """The input workers of a slice; data sets and iterators refer to them."""

    total: Callable[[tf.Tensor], tf.Tensor]
    num_replicas: int

    def serialize(self) -> Any:
        """Return a key that tells iterator types apart, whose functions differ."""
        return (*super().serialize(), "slice")


def slice_workers(
    strategy: Any, options: Any, replicas: int, total: Callable[[tf.Tensor], tf.Tensor]
) -> Any:
    """Return the input workers of a TPU strategy, which end together with other slices'.

    Parameters
    ----------
    strategy, options
        As TensorFlow distributes data.
    replicas
        Of all slices.
    total
        Returns the sum over the slices of a count, int64 without dimensions. **Collective.**
    """
    found = strategy.extended._get_input_workers(options)
    workers = _SliceWorkers(found._worker_device_pairs, found._canonicalize_devices)
    workers.total, workers.num_replicas = total, replicas
    return workers


def slice_of_dataset(
    dataset: Any, strategy: Any, options: Any, slices: tuple[int, int], workers: Any
) -> Any:
    """Return a slice's dataset as TensorFlow would divide it among hosts of one strategy.

    Parameters
    ----------
    dataset, strategy, options
        As TensorFlow distributes it.
    slices
        Index of this slice, and how many there are.
    workers
        Its `slice_workers`.

    Notes
    -----
    Iterating is **Collective**, one sum for each batch, unless the data is endless.
    """
    extended = strategy.extended
    if options is None or options.experimental_fetch_to_device:
        extended._check_spec(dataset.element_spec)
    replicas, order = workers.num_replicas, extended._get_replica_order()
    how = {"num_replicas_in_sync": replicas, "options": options, "replica_order": order}
    return _slice_class(*slices)(workers, strategy, dataset, **how)


@functools.cache
def _slice_class(index: int, count: int) -> Any:
    replicate = _modules["data.experimental.ops.distribute"].replicate
    auto_shard = _modules["distribute.input_ops"].auto_shard_dataset

    class SliceOfDataset(_lib.DistributedDataset):  # type: ignore[misc]
        def _create_cloned_datasets_from_dataset(
            self, dataset: Any, _: Any, workers: Any, strategy: Any, replicas: int
        ) -> None:
            del strategy
            hosts = workers.worker_devices
            first, total = index * len(hosts), count * len(hosts)
            rebatched = self._make_rebatch_fn(dataset, total, replicas)
            copies = replicate(dataset, hosts)
            self._cloned_datasets = []
            # Hosts are numbered over all slices, as those of one TPU would be.
            for number, host in enumerate(hosts, first):
                with tf.device(host):
                    own = rebatched(copies[host], number)
                    self._cloned_datasets.append(auto_shard(own, total, number, replicas))

    return SliceOfDataset


def kind_of_slice(distributed: Any) -> str:
    """Return a description of how a slice's data end, which must be equal for all. **Local.**"""
    if distributed._cardinality == _ENDLESS:
        return "without an end"
    distributed._cardinality = tf.data.UNKNOWN_CARDINALITY  # a slice without data asks, too
    if distributed._enable_get_next_as_optional:
        return "with batches of any length"
    return "with batches of one shape"


def _end_together() -> None:
    """Let a slice's iterator ask the other slices whether they have data left."""
    count, next_of_one = (
        _lib._calculate_replicas_with_values,
        _lib.DistributedIteratorBase._get_next_no_partial_batch_handling,
    )

    def count_all(strategy: Any, workers: Any, optionals: Any) -> Any:
        mine = count(strategy, workers, optionals)
        return workers.total(mine) if isinstance(workers, _SliceWorkers) else mine

    def next_of_all(self: Any, name: str | None = None) -> Any:
        # Of batches of any length TensorFlow's own iterator asks `count_all`; endless data has no
        # end to ask for.
        ends_alone = self._cardinality == _ENDLESS or self._enable_get_next_as_optional
        if ends_alone or not isinstance(self._input_workers, _SliceWorkers):
            return next_of_one(self, name)
        return _next_unless_one_has_none(self)

    _lib._calculate_replicas_with_values = count_all
    _lib.DistributedIteratorBase._get_next_no_partial_batch_handling = next_of_all


def _next_unless_one_has_none(iterator: Any) -> Any:
    """Return the next batch; raise OutOfRangeError on all slices if one has none."""
    workers, optionals = iterator._input_workers, []
    for host, own in zip(workers.worker_devices, iterator._iterators, strict=True):
        with tf.device(host):
            optionals.append(own.get_next_as_optional_list())
    found = _lib._calculate_replicas_with_values(iterator._strategy, workers, optionals)

    def end() -> tf.Tensor:
        with tf.device(workers.worker_devices[0]):
            # In a graph only an operation can raise OutOfRangeError: this one reads from an empty
            # dataset.
            return iter(tf.data.Dataset.range(0)).get_next()

    go_on = tf.cond(found == workers.num_replicas, lambda: tf.constant(0, tf.int64), end)
    # Otherwise TensorFlow might take values out of optionals that have none.
    with tf.control_dependencies([go_on]):
        values = _lib._get_value_or_dummy(workers, optionals, produce_dummy=False)
    if iterator._replica_order is not None:
        values = iterator._reorder_replicas(values)
    return _lib._create_per_replica(values, iterator._strategy)


_end_together()
