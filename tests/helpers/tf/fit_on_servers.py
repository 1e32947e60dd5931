"""A model, and data for it, of the tests of Keras's fit with parameter servers."""

from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np

__all__ = ["BATCH", "ROWS", "STEPS", "X", "Y", "compiled", "sgd"]

ROWS, BATCH, STEPS = 301, 32, 10
X = np.random.default_rng(0).normal(size=(ROWS, 8)).astype("float32")
Y = (X.sum(1, keepdims=True) > 0).astype("float32")


def compiled(
    scope: AbstractContextManager[Any],
    optimizer: Any,
    kind: Any = keras.Sequential,
    **options: Any,
) -> Any:
    """Return a compiled model of two layers, made in `scope`, with the same weights each time."""
    keras.utils.set_random_seed(1)
    with scope:
        layers = [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)]
        model = kind([keras.Input((8,)), *layers])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(optimizer(), loss, **{"metrics": ["mae"], **options})
    return model


def sgd() -> Any:
    """Return an optimizer with slots."""
    return keras.optimizers.SGD(0.1, momentum=0.9)
