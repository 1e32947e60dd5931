"""`WrappedStrategy`: pass the calls of a `TFBackedStrategy` to TensorFlow, in one process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.errors import ClosedError
from mpistrat.tensorflow.errors import of_both
from mpistrat.tensorflow.wrapped_strategy.error_translation import ErrorTranslation

__all__ = ["WrappedStrategy"]


class WrappedStrategy:
    """The calls of a `TFBackedStrategy`, passed to TensorFlow's. All methods are **Local**.

    This class serves one process; where there are several ranks, a derived class does.

    Parameters
    ----------
    tf_strategy
        TensorFlow's.
    communicator
        Between the ranks.

    Attributes
    ----------
    drives
        Whether this rank runs what is to be run.
    """

    drives = True

    def __init__(self, tf_strategy: tf.distribute.Strategy, communicator: Communicator) -> None:
        self.tf_strategy, self.communicator = tf_strategy, communicator
        self.translation = ErrorTranslation(tf_strategy, communicator)

    @property
    def num_replicas(self) -> int:
        """Number of replicas over which gradients are summed."""
        return int(self.tf_strategy.num_replicas_in_sync)

    def require_open(self) -> None:
        """Raise if the strategy was closed."""
        if self.communicator.is_closed:
            raise of_both(ClosedError("this strategy was closed; make a new one"))

    def scope(self) -> AbstractContextManager[Any]:
        """Make TensorFlow's strategy the current one."""
        scope: AbstractContextManager[Any] = self.tf_strategy.scope()
        return scope

    def run(self, fn: Callable[..., Any], args: Any, kwargs: Any, options: Any) -> Any:
        """Call a function on each replica; the peers hear of its errors in their next call."""
        self.require_open()
        try:
            with self.translation.of("run", has_functions=True):
                return self.tf_strategy.run(fn, args=args, kwargs=kwargs, options=options)
        except BaseException as error:
            # The other ranks may be in a collective that this rank's function would have joined.
            self.communicator.fail(error)
            raise

    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Combine the replicas' values."""
        self.require_open()
        with self.translation.of("reduce"):
            return self.tf_strategy.reduce(reduce_op, value, axis=axis)

    def gather(self, value: Any, axis: int) -> Any:
        """Put the replicas' values side by side."""
        self.require_open()
        with self.translation.of("gather"):
            return self.tf_strategy.gather(value, axis=axis)

    def distribute_dataset(self, dataset: Any, options: Any) -> Any:
        """Give each replica its share of a dataset."""
        self.require_open()
        with self.translation.of("experimental_distribute_dataset"):
            return self.tf_strategy.experimental_distribute_dataset(dataset, options)

    def datasets_from_function(self, dataset_fn: Callable[..., Any], options: Any) -> Any:
        """Have each input pipeline make a dataset."""
        self.require_open()
        with self.translation.of("distribute_datasets_from_function", has_functions=True):
            return self.tf_strategy.distribute_datasets_from_function(dataset_fn, options)

    def values_from_function(self, value_fn: Callable[..., Any]) -> Any:
        """Have each replica's value made."""
        self.require_open()
        with self.translation.of("values from a function", has_functions=True):
            return self.tf_strategy.experimental_distribute_values_from_function(value_fn)

    def local_results(self, value: Any) -> Any:
        """Return this process's values of a distributed one."""
        return self.tf_strategy.experimental_local_results(value)

    def on_driver(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function where the strategy is driven: here."""
        self.require_open()
        return function(*args, **kwargs)

    def close(self) -> None:
        """End it, once all ranks are here. **Collective.**"""
        self.communicator.close()
