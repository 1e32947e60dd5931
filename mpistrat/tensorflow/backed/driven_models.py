"""Keras's models where one rank drives: it trains, and the others get what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpistrat.errors import UsageError
from mpistrat.tensorflow.backed.driven_data import own_call

__all__ = ["TRAINING", "USING", "by_driver"]

TRAINING = ("fit", "train_on_batch")
USING = ("evaluate", "predict", "predict_on_batch", "test_on_batch")


def by_driver(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of models that only the driving rank runs, for all. **Collective.**

    After training all ranks have the weights and the optimizer's state.
    """
    changes_weights = original.__name__ in TRAINING

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        link = getattr(self.distribute_strategy, "_mpistrat_link", None)
        if link is None or link.is_alone:
            return original(self, *args, **kwargs)
        here: list[Any] = []

        def make() -> Any:
            own_args, own_kwargs = own_call(args, kwargs)
            here.append(original(self, *own_args, **own_kwargs))
            return _plain(here[0]), _state(self) if changes_weights else None

        result, state = link.told(f"{original.__name__} of a Keras model", make)
        if link.is_driver:
            return here[0]
        if state is not None:
            _adopt(self, *state)
        return _history(self, result) if original.__name__ == "fit" else result

    return method


def _plain(result: Any) -> Any:
    """Return what can be sent of a result: of a History its numbers."""
    history = getattr(result, "history", None)
    return result if history is None else (history, result.epoch)


def _state(model: Any) -> Any:
    values = [variable.numpy() for variable in _optimizer_variables(model)]
    return model.get_build_config(), model.get_weights(), values


def _optimizer_variables(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    return [] if optimizer is None or not optimizer.built else optimizer.variables


def _adopt(model: Any, config: Any, weights: Any, of_optimizer: list[Any]) -> None:
    """Make a model the one that was trained on the driving rank."""
    with model.distribute_strategy.scope():
        if not model.built and config is not None:
            model.build_from_config(config)
        if of_optimizer and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
    model.set_weights(weights)
    variables = _optimizer_variables(model)
    if len(variables) != len(of_optimizer):
        raise UsageError(
            f"the optimizer has {len(variables)} variables on this rank, and {len(of_optimizer)}"
            " on the driving one; make and compile the same model on all ranks"
        )
    for variable, value in zip(variables, of_optimizer, strict=True):
        variable.assign(value)


def _history(model: Any, told: Any) -> Any:
    import keras

    model.history = keras.callbacks.History()
    model.history.set_model(model)
    model.history.history, model.history.epoch = told
    return model.history
