"""Hook Keras's training loop under parameter servers: workers run the steps and read the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow.keras.on_workers.batches import WorkerData
from mpistrat.tensorflow.keras.on_workers.steps import Prediction, Predictions, Steps
from mpistrat.tensorflow.own_strategies import has_servers
from mpistrat.tensorflow.private import data as private_data

__all__ = [
    "all_predictions",
    "data_given",
    "predictions_on_workers",
    "settled",
    "steps_on_workers",
    "worker_data",
]


def steps_on_workers(original: Callable[..., Any]) -> Callable[..., Any]:
    """Send the steps of fit and evaluate to the workers."""

    def make(self: Any, step_function: Callable[..., Any]) -> Any:
        strategy = self.distribute_strategy
        if not has_servers(strategy):
            return original(self, step_function)
        _check_graphs(self)
        if step_function == self.train_step:
            _check_whole(self)
        step = self._autoconvert_optionals(lambda data: strategy.run(step_function, (data,)))
        return Steps(strategy.coordinator, step, lambda: self.steps_per_execution)

    return make


def predictions_on_workers(original: Callable[..., Any]) -> Callable[..., Any]:
    """Send the steps of predict to the workers."""

    def make(self: Any, force: bool = False) -> Any:
        strategy = self.distribute_strategy
        if not has_servers(strategy) or (self.predict_function is not None and not force):
            return original(self, force)
        _check_graphs(self)
        predict = self._autoconvert_optionals(
            lambda data: strategy.run(self.predict_step, (data,))
        )
        self.predict_function = Predictions(strategy.coordinator, predict)
        return None

    return make


def _check_graphs(model: Any) -> None:
    """Raise if what the model does cannot be sent to workers."""
    if model.run_eagerly:
        raise UsageError(
            "run_eagerly=True under ParameterServerStrategy: workers only run graphs; leave it out"
        )
    replicas = model.distribute_strategy.num_replicas_in_sync
    if replicas > 1:
        raise UsageError(
            f"{replicas} GPUs on each worker: fit and evaluate use one; start a rank for each GPU,"
            " or write a loop with coordinator.schedule"
        )


def _check_whole(model: Any) -> None:
    """Raise if the model has weights in parts: TensorFlow has no gradients of these."""
    parts = [one.path for one in model.trainable_weights if hasattr(one._value, "variables")]
    if parts:
        raise UsageError(
            f"variable_partitioner divides {', '.join(parts)}; fit trains whole weights only:"
            " leave the partitioner out, or write a loop with gradients of .variables"
        )


def data_given(original: Callable[..., Any]) -> Callable[..., Any]:
    """Take a data set that the program has distributed for the one that it was made of."""

    def init(self: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
        if has_servers(distribute_strategy) and "x" in kwargs:
            kwargs["x"] = _undistributed(kwargs["x"])
        original(self, distribute_strategy, *args, **kwargs)

    return init


def _undistributed(data: Any) -> Any:
    """Return the data set behind a distributed one, which is only divided over ranks."""
    if private_data.is_of_function(data):
        raise UsageError(
            f"fit, evaluate or predict with a {type(data).__name__} under"
            " ParameterServerStrategy; expected the tf.data.Dataset itself, of which workers read"
            " the batches of their steps"
        )
    return private_data.original_dataset(data) if private_data.is_distributed(data) else data


def worker_data(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let each worker read the batches of its own steps."""

    def get_iterator(self: Any) -> Any:
        strategy = self._distribute_strategy
        if not has_servers(strategy):
            return original(self)
        if not hasattr(self, "_mpistrat_data"):
            dataset = private_data.original_dataset(self._distributed_dataset)
            length = self.data_adapter.num_batches
            self._mpistrat_data = WorkerData(strategy.coordinator, dataset, length)
        return self._mpistrat_data

    return get_iterator


def settled(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wait for the workers' steps where Keras waits for the steps of an epoch."""

    def tf_sync(self: Any) -> None:
        original(self)
        if hasattr(self, "_mpistrat_data"):
            self._mpistrat_data.settle()

    return tf_sync


def all_predictions(original: Callable[..., Any]) -> Callable[..., Any]:
    """Concatenate the workers' predictions, output by output."""

    def concat(batches: list[Any]) -> Any:
        if not isinstance(batches[0], Prediction):
            return original(batches)
        parts = [part for one in batches for part in one.parts()]
        return tf.nest.map_structure(lambda *rows: original(list(rows)), *parts)

    return concat
