"""A small convolutional network that Keras trains with ``fit`` under a strategy of all ranks."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from mpistrat.bench.training_loop.examples import COUNT, make_examples
from mpistrat.types import Array

__all__ = ["NETWORK", "KerasFit"]

NETWORK = "keras-cnn"
_SIDE = 16  # of an image
_RATE = 0.1
_WARMUP = 2  # steps of a call that are not timed: it has to start its input


class KerasFit:
    """A model that is made in `scope`, with a clock around each step of ``fit``.

    Parameters
    ----------
    batch
        Examples of a step, over all ranks.
    scope
        Of a strategy; by default the model is one process's own.
    """

    def __init__(self, batch: int, scope: AbstractContextManager[Any] | None = None) -> None:
        import keras

        self._batch = batch
        keras.utils.set_random_seed(0)  # the same initial weights on all ranks
        with nullcontext() if scope is None else scope:
            self._model = _model()
        self._initial = self._model.get_weights()
        self._clock = keras.callbacks.LambdaCallback(on_train_batch_end=self._end_step)
        self._ends_s: list[float] = []
        self._losses: list[float] = []

    @property
    def weights(self) -> list[Array]:
        """The present weights."""
        weights: list[Array] = self._model.get_weights()
        return weights

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return int(self._model.count_params())

    def run(self, steps: int) -> tuple[list[float], Array]:
        """Train from the initial weights on. **Collective** if the scope is.

        Returns
        -------
        tuple
            The mean loss of each step's batch, and the time of each step but the first ones in
            microseconds; `steps` of them.
        """
        import keras

        keras.utils.set_random_seed(0)
        self._model.set_weights(self._initial)
        self._ends_s, self._losses = [], []
        images, labels = self._examples(steps + _WARMUP)
        options = {"batch_size": self._batch, "shuffle": False, "verbose": 0}
        self._model.fit(images, labels, callbacks=[self._clock], **options)
        return _of_steps(self._losses), np.diff(self._ends_s)[_WARMUP - 1 :] * 1e6

    def _examples(self, steps: int) -> tuple[Array, Array]:
        images, labels = make_examples()
        rows = np.arange(steps * self._batch) % COUNT
        return images.reshape(-1, _SIDE, _SIDE, 1)[rows], labels[rows]

    def _end_step(self, step: int, logs: Any) -> None:
        self._ends_s.append(time.perf_counter())
        self._losses.append(float(logs["loss"]))


def _of_steps(means: list[float]) -> list[float]:
    """Return each step's loss, of the means over all steps so far that Keras reports."""
    totals = np.multiply(means, np.arange(1, len(means) + 1))
    return [float(one) for one in np.diff(totals, prepend=0.0)]


def _model() -> Any:
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((_SIDE, _SIDE, 1)),
            *(layers.Conv2D(width, 3, 2, activation="relu") for width in (16, 32)),
            layers.Flatten(),
            layers.Dense(64, "relu"),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(_RATE), loss)
    return model
