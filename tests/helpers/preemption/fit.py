"""A `fit` of Keras that can be stopped by signals: Dropout, BatchNormalization, shuffled data.

Started as ``python -m helpers.preemption.fit FOLDER '{"data": "arrays"}'``, with the fields of
`Options`. It prints a digest of the weights and of what the optimizer keeps, and the losses of
each epoch: those of a `fit` that nobody has stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import mpistrat.tensorflow as distribute

# isort: split
import keras
import tensorflow as tf

from helpers.preemption.training import say

EPOCHS, ROWS, BATCH = 3, 40, 8
BATCHES = ROWS // BATCH


@dataclass(frozen=True)
class Options:
    """What happens in a run.

    Attributes
    ----------
    data
        Of which kind they are.
    strikes
        Signals: an epoch, a batch, a rank, and the name of what that rank sends to itself at the
        beginning of that batch. A batch below 0 is one of the validation. ``"late SIGUSR1"`` comes
        half a second later, and ``"sleep"`` is no signal: the rank waits for ever.
    callback
        Arguments of `PreemptionCallback`.
    """

    data: str = "arrays"
    strikes: list[tuple[int, int, int, str]] = field(default_factory=list)
    callback: dict[str, Any] = field(default_factory=dict)


class Rows(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches that are shuffled, and changed at random by Python's and NumPy's generators."""

    def __init__(self, x: Any, y: Any) -> None:
        super().__init__()
        self.x, self.y = x, y

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        noise = random.random() + np.random.normal()  # noqa: NPY002 - the global one
        return self.x[rows] + np.float32(noise), self.y[rows]


class Strikes(keras.callbacks.Callback):  # type: ignore[misc]
    """Send signals to this process."""

    def __init__(self, strikes: list[tuple[int, int, int, str]], rank: int) -> None:
        super().__init__()
        self.strikes, self.rank, self.epoch = strikes, rank, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the epoch."""
        self.epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Send the signals of this batch."""
        for epoch, at, rank, name in self.strikes:
            if (epoch, at, rank) == (self.epoch, batch, self.rank):
                _strike(name)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Send the signals of this batch of the validation."""
        self.on_train_batch_begin(-1 - batch)


def _strike(name: str) -> None:
    while name == "sleep":
        time.sleep(1)
    number = getattr(signal, name.removeprefix("late "))
    if name.startswith("late "):
        threading.Timer(0.5, os.kill, (os.getpid(), number)).start()
    else:
        os.kill(os.getpid(), number)


def dataset(kind: str, x: Any, y: Any) -> dict[str, Any]:
    """Return the arguments of `fit` for some data."""
    if kind == "arrays":
        return {"x": x, "y": y, "batch_size": BATCH}
    if kind == "PyDataset":
        return {"x": Rows(x, y), "shuffle": True}
    rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS, seed=5)
    if kind == "unknown length":
        rows = rows.filter(lambda *_: True)
    if kind == "steps":
        return {"x": rows.repeat().batch(BATCH), "steps_per_epoch": BATCHES - 1}
    return {"x": rows.batch(BATCH)}


def made() -> Any:
    """Return a compiled model."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, "relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def digest(model: Any) -> str:
    """Return a digest of the weights and of what the optimizer keeps."""
    values = [*model.get_weights(), *(np.asarray(one) for one in model.optimizer.variables)]
    return hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()[:16]


def fit(folder: str, strategy: Any, options: Options) -> tuple[Any, Any, Any]:
    """Train a new model; return it, its history and the callback."""
    keras.utils.set_random_seed(3)
    x = np.random.default_rng(0).normal(size=(ROWS, 6)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    with strategy.scope():
        model = made()
    preemption = distribute.PreemptionCallback(folder, **options.callback)
    history = model.fit(
        **dataset(options.data, x, y),
        epochs=EPOCHS,
        validation_data=(x, y),
        validation_batch_size=BATCH,
        verbose=0,
        callbacks=[Strikes(options.strikes, strategy.communicator.rank), preemption],
    )
    return model, history, preemption


def main(folder: str, text: str = "{}") -> None:
    """Train, and print what has come of it."""
    strategy = distribute.MirroredStrategy(["CPU:0"])
    model, history, _ = fit(folder, strategy, Options(**json.loads(text)))
    say(f"epochs {history.epoch}: {digest(model)}")
    for index, epoch in enumerate(history.epoch):
        losses = [f"{name} {values[index]:.9f}" for name, values in history.history.items()]
        say(f"epoch {epoch}: {' '.join(losses)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
