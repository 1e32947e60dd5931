"""Keras models with one driver: it trains, and the others receive the weights and logs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from mpistrat.errors import UsageError
from mpistrat.tensorflow.wrapped_strategy.one_driver.datasets import own_call
from mpistrat.tensorflow.wrapped_strategy.one_driver.link import DriverLink

__all__ = ["TRAINING", "USING", "by_driver", "noting_batch"]

TRAINING = ("fit", "train_on_batch")
USING = ("evaluate", "predict", "predict_on_batch", "test_on_batch")
_batches: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""Of what batch a model was built: types and shapes, which build it on the other ranks, too."""


def by_driver(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of models that only the driving rank runs, for all. **Collective.**

    After training all ranks have the weights and the optimizer's state, or an error.
    """
    changes_weights = original.__name__ in TRAINING

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        link = _link(self)
        if link is None or link.is_alone:
            return original(self, *args, **kwargs)
        here: list[Any] = []

        def make() -> Any:
            own_args, own_kwargs = own_call(args, kwargs)
            here.append(original(self, *own_args, **own_kwargs))
            return _plain(here[0]), _state(self) if changes_weights else None

        result, state = link.on_driver(f"{original.__name__} of a Keras model", make)
        if changes_weights:
            _adopt(link, self, state)
        if link.is_driver:
            return here[0]
        return _history(self, result) if original.__name__ == "fit" else result

    return method


def noting_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method that builds a model of a batch; where one rank drives, this is noted."""

    def build(self: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        if data_batch is not None and _link(self) is not None:
            from keras import tree

            _batches[self] = tree.map_structure(_spec, data_batch)
        return original(self, iterator, data_batch)

    return build


def _spec(value: Any) -> tf.TensorSpec | None:
    return None if value is None else tf.TensorSpec(value.shape, value.dtype)


def _link(model: Any) -> DriverLink | None:
    return getattr(model.distribute_strategy, "_mpistrat_link", None)


def _plain(result: Any) -> Any:
    """Return what can be sent of a result: of a History its numbers."""
    history = getattr(result, "history", None)
    # A History refers to the whole model; its numbers are enough.
    return result if history is None else (history, result.epoch)


def _state(model: Any) -> Any:
    values = [variable.numpy() for variable in _optimizer_variables(model)]
    return _batches.get(model), model.get_weights(), values


def _optimizer_variables(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    return [] if optimizer is None or not optimizer.built else optimizer.variables


def _adopt(link: DriverLink, model: Any, state: Any) -> None:
    """Make a model on the ranks that wait the one that was trained, or raise on all ranks."""
    with link.communicator.checking():
        try:
            if not link.is_driver:
                _take(model, *state)
        except Exception as error:
            raise UsageError(
                f"rank {link.communicator.rank} cannot have what rank {link.driver} has trained"
                f" ({error}); make and compile the same model on all ranks, and build it before:"
                " call it with a batch"
            ) from error
    link.communicator.barrier()  # the driving rank goes on when all have it


def _take(model: Any, batch: Any, weights: Any, of_optimizer: list[Any]) -> None:
    # The model first: its optimizer is built for the model's variables.
    with model.distribute_strategy.scope():
        if batch is not None and not all(layer.built for layer in model._flatten_layers()):
            model._symbolic_build(data_batch=batch)
        if of_optimizer and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
    model.set_weights(weights)
    variables = _optimizer_variables(model)
    if len(variables) != len(of_optimizer):
        raise UsageError(
            f"its optimizer has {len(variables)} variables, expected {len(of_optimizer)}"
        )
    for variable, value in zip(variables, of_optimizer, strict=True):
        variable.assign(value)


def _history(model: Any, told: Any) -> Any:
    import keras

    model.history = keras.callbacks.History()
    model.history.set_model(model)
    model.history.history, model.history.epoch = told
    return model.history
