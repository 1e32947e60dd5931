"""What is used of TensorFlow's private modules for data sets; see `private_api`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from mpistrat.tensorflow.private_api import load

__all__ = [
    "functions_of",
    "inputs_of",
    "keep_datasets_of_iterators",
    "original_dataset",
    "own_dataset",
    "seeds_of",
    "wrap_dataset_seeds",
    "wrap_device_datasets",
]

_modules = load(
    {
        "data.ops.multi_device_iterator_ops": (
            "OwnedMultiDeviceIterator",
            "_create_device_dataset",
            "gen_dataset_ops",
        ),
        "data.util.random_seed": ("get_seed",),
    }
)


def own_dataset(distributed: Any) -> Any:
    """Return what a DistributedDataset of one worker a process has for this one."""
    (dataset,) = distributed._cloned_datasets
    return dataset


def wrap_device_datasets(wrap: Callable[[Any], Any]) -> None:
    """Change what strategies' iterators make for each device from the dataset of a process."""
    iterators: Any = _modules["data.ops.multi_device_iterator_ops"]
    make = iterators._create_device_dataset
    iterators._create_device_dataset = lambda *args, **kwargs: wrap(make(*args, **kwargs))


def keep_datasets_of_iterators() -> None:
    """Make strategies' iterators keep the dataset that TensorFlow makes of theirs, till last."""
    iterators: Any = _modules["data.ops.multi_device_iterator_ops"]
    operations, kind, made = iterators.gen_dataset_ops, iterators.OwnedMultiDeviceIterator, _Made()
    start, init = operations.multi_device_iterator_init, kind.__init__

    def noted(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        made.dataset = dataset
        return start(dataset, *args, **kwargs)

    @functools.wraps(init)
    def keeping(self: Any, *args: Any, **kwargs: Any) -> None:
        made.dataset = None  # an iterator of another kind may have made one
        try:
            init(self, *args, **kwargs)
            self._mpistrat_dataset = made.dataset  # the last of its attributes
        finally:
            made.dataset = None

    operations.multi_device_iterator_init, kind.__init__ = noted, keeping


class _Made(threading.local):
    """The dataset that this thread has made an iterator of just now."""

    dataset: Any = None


def original_dataset(distributed: Any) -> Any:
    """Return the data set that was distributed."""
    return distributed._original_dataset


def wrap_dataset_seeds(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace what gives seeds to data sets that are random."""
    seeds: Any = _modules["data.util.random_seed"]
    seeds.get_seed = wrap(seeds.get_seed)


def inputs_of(dataset: Any) -> Any:
    """Return the data sets that one is made of."""
    return dataset._inputs()


def functions_of(dataset: Any) -> list[str]:
    """Return the names of the functions that a data set calls, without those of its inputs."""
    return [own.function.name.decode() for own in dataset._functions()]


def seeds_of(dataset: Any) -> list[Any]:
    """Return the two seeds of a random data set, tensors; None for those that it has not."""
    return [getattr(dataset, name, None) for name in ("_seed", "_seed2")]
