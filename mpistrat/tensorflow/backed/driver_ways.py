"""What `TFBackedStrategy` asks of a way, on the rank that drives and on those that wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.tensorflow import keras_hooks
from mpistrat.tensorflow.backed.driving import Elsewhere, Link
from mpistrat.tensorflow.backed.local import Local

__all__ = ["Driving", "Waiting"]


class Driving(Local):
    """The rank that drives: it tells the others its results.

    Parameters
    ----------
    way
        How this rank drives its strategy.
    link
        To the others.
    """

    def __init__(self, way: Local, link: Link) -> None:
        super().__init__(way.tf_strategy, way.communicator)
        self._way, self.link = way, link
        way.tf_strategy._mpistrat_link = link  # Keras's models know their strategy

    def scope(self) -> AbstractContextManager[Any]:
        """See `Local`; models made in it train on this rank, and the others get their weights."""
        keras_hooks.install()
        return self._way.scope()

    def run(self, fn: Callable[..., Any], args: Any, kwargs: Any, options: Any) -> Any:
        """See `Local`. **Local.**"""
        return self._way.run(fn, args, kwargs, options)

    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Combine the replicas' values for all ranks. **Collective.**"""
        self.require_open()
        return self.link.told("reduce", lambda: self._way.reduce(reduce_op, value, axis))

    def gather(self, value: Any, axis: int) -> Any:
        """Put the replicas' values side by side for all ranks. **Collective.**"""
        self.require_open()
        return self.link.told("gather", lambda: self._way.gather(value, axis))

    def distribute_dataset(self, dataset: Any, options: Any) -> Any:
        """Give each replica its share, all of which are here. **Collective.**"""
        return self._dataset(lambda: self._way.distribute_dataset(dataset, options))

    def datasets_from_function(self, dataset_fn: Callable[..., Any], options: Any) -> Any:
        """Have each input pipeline make a dataset, all of which are here. **Collective.**"""
        return self._dataset(lambda: self._way.datasets_from_function(dataset_fn, options))

    def _dataset(self, make: Callable[[], Any]) -> Any:
        self.require_open()
        made: list[Any] = []
        self.link.told("distributing a dataset", lambda: made.append(make()))
        return DrivenDataset(self.link, made[0])

    def values_from_function(self, value_fn: Callable[..., Any]) -> Any:
        """See `Local`."""
        return self._way.values_from_function(value_fn)

    def on_driver(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function here, for all ranks. **Collective.**"""
        self.require_open()
        return self.link.told("on_driver", lambda: function(*args, **kwargs))


class Waiting(Local):
    """A rank that waits; it has a stand-in of one device for what is made in a scope.

    Parameters
    ----------
    communicator
        Between all ranks.
    link
        To the one that drives.
    num_replicas
        Of that.
    """

    drives = False

    def __init__(self, communicator: Communicator, link: Link, num_replicas: int) -> None:
        super().__init__(tf.distribute.OneDeviceStrategy("CPU:0"), communicator)
        self.link, self._num_replicas = link, num_replicas
        self.tf_strategy._mpistrat_link = link

    @property
    def num_replicas(self) -> int:
        """Number of replicas, all of which are elsewhere."""
        return self._num_replicas

    def scope(self) -> AbstractContextManager[Any]:
        """Make variables that nobody trains; Keras's models get the weights of the one that is."""
        keras_hooks.install()
        return super().scope()

    def run(self, fn: Callable[..., Any], args: Any, kwargs: Any, options: Any) -> Any:
        """Call nothing. **Local.**"""
        del fn, args, kwargs, options
        self.require_open()
        return Elsewhere(self.link.driver)

    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Wait for the result. **Collective.**"""
        del reduce_op, value, axis
        return self._awaited("reduce")

    def gather(self, value: Any, axis: int) -> Any:
        """Wait for the result. **Collective.**"""
        del value, axis
        return self._awaited("gather")

    def _awaited(self, what: str) -> Any:
        self.require_open()
        return self.link.told(what, _never)

    def distribute_dataset(self, dataset: Any, options: Any) -> Any:
        """Wait for the dataset. **Collective.**"""
        del dataset, options
        self._awaited("distributing a dataset")
        return DrivenDataset(self.link)

    def datasets_from_function(self, dataset_fn: Callable[..., Any], options: Any) -> Any:
        """Wait for the dataset. **Collective.**"""
        return self.distribute_dataset(dataset_fn, options)

    def values_from_function(self, value_fn: Callable[..., Any]) -> Any:
        """Call nothing."""
        del value_fn
        self.require_open()
        return Elsewhere(self.link.driver)

    def local_results(self, value: Any) -> Any:
        """Return no values of what is elsewhere."""
        return () if isinstance(value, Elsewhere) else super().local_results(value)

    def on_driver(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Wait for the result. **Collective.**"""
        del function, args, kwargs
        return self._awaited("on_driver")

    def close(self) -> None:
        """End it, once the rank that drives is here, however long that takes. **Collective.**"""
        self.communicator.close(timeout=math.inf)


class DrivenDataset:
    """A distributed dataset of the rank that drives; on all ranks it has as many batches.

    Parameters
    ----------
    link
        Between the ranks.
    dataset
        What is iterated over; None on a rank that waits.
    """

    def __init__(self, link: Link, dataset: Any = None) -> None:
        self._link, self._dataset = link, dataset

    @property
    def element_spec(self) -> Any:
        """The types of a batch, or of what stands for it."""
        if self._dataset is None:
            return Elsewhere.Spec(driver=self._link.driver)
        return self._dataset.element_spec

    @property
    def cardinality(self) -> Any:
        """What tells the driving rank the number of batches."""
        return self._dataset.cardinality

    def __iter__(self) -> Iterator[Any]:
        return _Batches(self._link, None if self._dataset is None else iter(self._dataset))


class _Batches:
    def __init__(self, link: Link, batches: Any) -> None:
        self._link, self._batches = link, batches
        self.get_next = self.__next__

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """Return the next batch, or what stands for it. **Collective.**"""
        if self._link.is_alone:
            return next(self._batches)
        found: list[Any] = []
        if not self._link.told("next batch", lambda: self._look(found)):
            raise StopIteration
        return found[0] if found else Elsewhere(self._link.driver)

    def _look(self, found: list[Any]) -> bool:
        try:
            found.append(next(self._batches))
        except StopIteration:
            return False
        return True


def _never() -> Any:
    raise AssertionError("a rank that waits calls nothing")
