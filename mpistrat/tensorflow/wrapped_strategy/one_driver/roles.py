"""The calls of a `TFBackedStrategy` on the rank that drives, and on the ranks that wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.tensorflow.keras import hooks as keras_hooks
from mpistrat.tensorflow.original_distribute import distribute
from mpistrat.tensorflow.wrapped_strategy.base import WrappedStrategy
from mpistrat.tensorflow.wrapped_strategy.one_driver import files as driven_files
from mpistrat.tensorflow.wrapped_strategy.one_driver.datasets import driven_dataset, own_call
from mpistrat.tensorflow.wrapped_strategy.one_driver.driver_value import ValueOnDriver
from mpistrat.tensorflow.wrapped_strategy.one_driver.link import DriverLink

__all__ = ["DriverRank", "WaitingRank"]


class DriverRank(WrappedStrategy):
    """The rank that drives: it tells the others its results.

    Parameters
    ----------
    wrapped
        Executes the calls on this rank.
    link
        To the others.
    """

    def __init__(self, wrapped: WrappedStrategy, link: DriverLink) -> None:
        super().__init__(wrapped.tf_strategy, wrapped.communicator)
        self._wrapped, self.link = wrapped, link
        wrapped.tf_strategy._mpistrat_link = link  # where variables find it
        driven_files.install()

    def scope(self) -> AbstractContextManager[Any]:
        """Make it the current one; models made in it train here, all ranks get their weights."""
        keras_hooks.install()
        return self._wrapped.scope()

    def run(self, fn: Callable[..., Any], args: Any, kwargs: Any, options: Any) -> Any:
        """See `WrappedStrategy`. **Local.**

        In ``on_driver`` the caller may catch its errors, so the peers are not told.
        """
        args, kwargs = own_call(args, kwargs)
        if not self.link.is_alone:
            return self._wrapped.run(fn, args, kwargs, options)
        self.require_open()
        with self._wrapped.translation.of("run", has_functions=True):
            return self.tf_strategy.run(fn, args, kwargs, options)

    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Combine the replicas' values for all ranks. **Collective.**"""
        self.require_open()
        return self.link.on_driver("reduce", lambda: self._wrapped.reduce(reduce_op, value, axis))

    def gather(self, value: Any, axis: int) -> Any:
        """Put the replicas' values side by side for all ranks. **Collective.**"""
        self.require_open()
        return self.link.on_driver("gather", lambda: self._wrapped.gather(value, axis))

    def distribute_dataset(self, dataset: Any, options: Any) -> Any:
        """Give each replica its share, all of which are here. **Collective.**"""
        return self._dataset(lambda: self._wrapped.distribute_dataset(dataset, options))

    def datasets_from_function(self, dataset_fn: Callable[..., Any], options: Any) -> Any:
        """Have each input pipeline make a dataset, all of which are here. **Collective.**"""
        return self._dataset(lambda: self._wrapped.datasets_from_function(dataset_fn, options))

    def _dataset(self, make: Callable[[], Any]) -> Any:
        self.require_open()
        return driven_dataset(self.link, make)

    def values_from_function(self, value_fn: Callable[..., Any]) -> Any:
        """See `WrappedStrategy`."""
        return self._wrapped.values_from_function(value_fn)

    def on_driver(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function here, for all ranks. **Collective.**"""
        self.require_open()
        args, kwargs = own_call(args, kwargs)
        return self.link.on_driver("on_driver", lambda: function(*args, **kwargs))

    def close(self) -> None:
        """End it, once all ranks are here. **Collective.**"""
        self.link.meet("close")
        super().close()


class WaitingRank(WrappedStrategy):
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

    def __init__(self, communicator: Communicator, link: DriverLink, num_replicas: int) -> None:
        super().__init__(_StandIn("CPU:0"), communicator)
        self.link, self._num_replicas = link, num_replicas
        self.tf_strategy._mpistrat_link = link
        driven_files.install()

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
        return ValueOnDriver(self.link.driver)

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
        return self.link.on_driver(what, _never)

    def distribute_dataset(self, dataset: Any, options: Any) -> Any:
        """Wait for the dataset. **Collective.**"""
        del dataset, options
        self.require_open()
        return driven_dataset(self.link, _never)

    def datasets_from_function(self, dataset_fn: Callable[..., Any], options: Any) -> Any:
        """Wait for the dataset. **Collective.**"""
        return self.distribute_dataset(dataset_fn, options)

    def values_from_function(self, value_fn: Callable[..., Any]) -> Any:
        """Call nothing."""
        del value_fn
        self.require_open()
        return ValueOnDriver(self.link.driver)

    def local_results(self, value: Any) -> Any:
        """Return no values of what is elsewhere."""
        is_on_driver = any(isinstance(one, ValueOnDriver) for one in tf.nest.flatten(value))
        return () if is_on_driver else super().local_results(value)

    def on_driver(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Wait for the result. **Collective.**"""
        del function, args, kwargs
        return self._awaited("on_driver")

    def close(self) -> None:
        """End it, once the rank that drives is here, however long that takes. **Collective.**"""
        self.link.meet("close")
        self.communicator.close(timeout=math.inf)


class _StandIn(distribute.OneDeviceStrategy):  # type: ignore[misc]
    """Whose members beyond tf.distribute.Strategy's are those of all that may be driven."""

    def experimental_assign_to_logical_device(self, tensor: Any, logical_device_id: int) -> Any:
        """Return the tensor."""
        del logical_device_id
        return tensor

    def experimental_split_to_logical_devices(
        self, tensor: Any, partition_dimensions: Sequence[int]
    ) -> Any:
        """Return the tensor."""
        del partition_dimensions
        return tensor

    def experimental_replicate_to_logical_devices(self, tensor: Any) -> Any:
        """Return the tensor."""
        return tensor


def _never() -> Any:
    raise AssertionError("a rank that waits calls nothing")
