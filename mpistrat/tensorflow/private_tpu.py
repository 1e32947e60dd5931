"""What is used of TensorFlow's private modules for TPUs; see `private_api`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.private_api import load

__all__ = [
    "before_tpu_gathers",
    "in_tpu_program",
    "initialized_tpu",
    "initialized_tpus",
    "is_device_assignment",
    "is_tpu_strategy",
    "name_of",
    "slice_of_dataset",
    "tpu_input_workers",
]

_modules = load(
    {
        "data.experimental.ops.distribute": ("replicate",),
        "distribute.input_lib": ("DistributedDataset",),
        "distribute.input_ops": ("auto_shard_dataset",),
        "distribute.tpu_strategy": ("TPUExtended", "_TPUReplicaContext"),
        "distribute.tpu_util": ("enclosing_tpu_context",),
        "tpu.device_assignment": ("DeviceAssignment",),
        "tpu.tpu_strategy_util": ("_INITIALIZED_TPU_SYSTEMS",),
    }
)


def initialized_tpus() -> Any:
    """Return the topologies of the TPUs that the program has initialized, by their names."""
    return _modules["tpu.tpu_strategy_util"]._INITIALIZED_TPU_SYSTEMS


def initialized_tpu(resolver: Any) -> Any:
    """Return the topology of a resolver's TPU if the program has initialized it; else None."""
    return initialized_tpus().get(name_of(resolver))


def name_of(resolver: Any) -> str:
    """Return the name by which TensorFlow remembers a resolver's TPU."""
    name: str = tf.compat.as_text(getattr(resolver, "_tpu", ""))
    return name


def is_device_assignment(value: Any) -> bool:
    """Whether a value says which cores of a TPU make up a replica."""
    return isinstance(value, _modules["tpu.device_assignment"].DeviceAssignment)


def is_tpu_strategy(strategy: Any) -> bool:
    """Whether a strategy runs programs on TPUs."""
    return isinstance(strategy.extended, _modules["distribute.tpu_strategy"].TPUExtended)


def in_tpu_program() -> bool:
    """Whether what is traced now is part of a TPU's program."""
    return _modules["distribute.tpu_util"].enclosing_tpu_context() is not None


def before_tpu_gathers(check: Callable[[Any], None]) -> None:
    """Have `check` called with a TPU strategy's machinery before a program gathers from it."""
    kind = _modules["distribute.tpu_strategy"]._TPUReplicaContext
    original = kind.all_gather

    @functools.wraps(original)
    def all_gather(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(self.strategy.extended)
        return original(self, *args, **kwargs)

    kind.all_gather = all_gather


def tpu_input_workers(strategy: Any, options: Any) -> Any:
    """Return the hosts of a TPU strategy that read data."""
    return strategy.extended._get_input_workers(options)


def slice_of_dataset(
    dataset: Any, strategy: Any, options: Any, slices: tuple[int, int], replicas: int
) -> Any:
    """Return what TensorFlow would give the hosts of one TPU strategy if all were of one.

    Parameters
    ----------
    dataset, strategy, options
        As TensorFlow distributes it.
    slices
        Index of this slice, and how many there are.
    replicas
        Of all slices.
    """
    extended = strategy.extended
    if options is None or options.experimental_fetch_to_device:
        extended._check_spec(dataset.element_spec)
    order = extended._get_replica_order()
    workers = tpu_input_workers(strategy, options)
    how = {"num_replicas_in_sync": replicas, "options": options, "replica_order": order}
    return _slice_class(*slices)(workers, strategy, dataset, **how)


@functools.cache
def _slice_class(index: int, count: int) -> Any:
    kind: Any = _modules["distribute.input_lib"].DistributedDataset
    replicate = _modules["data.experimental.ops.distribute"].replicate
    auto_shard = _modules["distribute.input_ops"].auto_shard_dataset

    class SliceOfDataset(kind):  # type: ignore[misc]
        def _create_cloned_datasets_from_dataset(
            self, dataset: Any, _: Any, workers: Any, strategy: Any, replicas: int
        ) -> None:
            del strategy
            hosts = workers.worker_devices
            first, total = index * len(hosts), count * len(hosts)
            rebatched = self._make_rebatch_fn(dataset, total, replicas)
            copies = replicate(dataset, hosts)
            self._cloned_datasets = []
            for number, host in enumerate(hosts, first):
                with tf.device(host):
                    own = rebatched(copies[host], number)
                    self._cloned_datasets.append(auto_shard(own, total, number, replicas))

    return SliceOfDataset
