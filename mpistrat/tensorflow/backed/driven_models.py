"""Keras's models where one rank drives: it trains, and the others get what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["TRAINING", "USING", "by_driver"]

TRAINING = ("fit", "train_on_batch")
USING = ("evaluate", "predict", "predict_on_batch", "test_on_batch")


def by_driver(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of models that only the driving rank runs, for all. **Collective.**"""
    changes_weights = original.__name__ in TRAINING

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        link = getattr(self.distribute_strategy, "_mpistrat_link", None)
        if link is None or link.is_alone:
            return original(self, *args, **kwargs)
        here: list[Any] = []

        def make() -> Any:
            here.append(original(self, *args, **kwargs))
            return _plain(here[0]), _state(self) if changes_weights else None

        result, state = link.told(f"{original.__name__} of {self.name}", make)
        if link.is_driver:
            return here[0]
        if state is not None:
            _adopt(self, state)
        return _history(self, result) if original.__name__ == "fit" else result

    return method


def _plain(result: Any) -> Any:
    """Return what can be sent of a result: of a History its numbers."""
    history = getattr(result, "history", None)
    return result if history is None else (history, result.epoch)


def _state(model: Any) -> Any:
    return model.get_build_config(), model.get_weights()


def _adopt(model: Any, state: Any) -> None:
    config, weights = state
    if not model.built and config is not None:
        model.build_from_config(config)
    model.set_weights(weights)


def _history(model: Any, told: Any) -> Any:
    import keras

    model.history = keras.callbacks.History()
    model.history.set_model(model)
    model.history.history, model.history.epoch = told
    return model.history
