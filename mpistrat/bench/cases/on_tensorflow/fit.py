"""The case ``fit``: Keras on all ranks against as many unrelated programs side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from mpistrat import Communicator
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.timing import Plan, measure
from mpistrat.bench.options import Json

__all__ = ["command"]

_ALONE, _TOGETHER = "side by side", "together"


def command(
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 7,
    steps: Annotated[int, typer.Option(min=1, help="Steps in an epoch.")] = 20,
    batch: Annotated[int, typer.Option(min=1, help="Images of a rank in a step.")] = 64,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs in a turn.")] = 1,
    json: Json = None,
) -> None:
    """Time fit of a small convolutional network, one thread a rank, weak scaling."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    communicator = Communicator()
    console = Console(quiet=communicator.rank != 0, highlight=False)
    sides = _sides(communicator.size, steps, batch, epochs)
    timings = measure(sides, communicator, Plan(rounds, 1, 1))
    alone, together = timings[_ALONE], timings[_TOGETHER]
    step_ms = alone.median_us / (steps * epochs) / 1e3
    share = together.speedup(alone)
    images = communicator.size * steps * batch * epochs
    for name, timing in timings.items():
        console.print(f"{name}: {images / timing.median_us * 1e6:.0f} images/s")
    console.print(f"A step alone takes {step_ms:.0f} ms; together reaches {share:.1%}.")
    later = _share_of_later_epochs(sides, communicator, epochs)
    console.print(f"Of that, epochs after the first: {later:.1%}.\n" if later else "")
    if json is not None and communicator.rank == 0:
        record = {"case": "fit", "ranks": communicator.size, "step_ms": round(step_ms, 2)}
        write_lines(json, [record | {"efficiency": round(share, 4), "later_epochs": later}])
    communicator.close()


def _share_of_later_epochs(
    sides: Mapping[str, _Fit], communicator: Communicator, epochs: int
) -> float | None:
    """Return the efficiency without a fit's one-time work: the median over the later epochs."""
    if epochs == 1:
        return None
    # Without the call that warms up, and without the first epoch of each.
    times = [
        np.reshape(sides[name].epochs_s, (-1, epochs))[1:, 1:] for name in (_ALONE, _TOGETHER)
    ]
    alone, together = communicator.allreduce(np.asarray(times), "max")
    return round(float(np.median(alone) / np.median(together)), 4)


def _sides(ranks: int, steps: int, batch: int, epochs: int) -> dict[str, _Fit]:
    import tensorflow as tf

    from mpistrat.tensorflow import MirroredStrategy

    # One core a rank on both sides, so that what is compared is the work between ranks.
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = MirroredStrategy()
    return {
        _ALONE: _Fit(nullcontext(), steps * batch, batch, epochs),
        _TOGETHER: _Fit(strategy.scope(), ranks * steps * batch, ranks * batch, epochs),
    }


class _Fit:
    """A model that is made in `scope`, and a timed call of its fit.

    Attributes
    ----------
    epochs_s
        What each epoch of each call has taken, in seconds.
    """

    def __init__(
        self, scope: AbstractContextManager[Any], rows: int, batch: int, epochs: int
    ) -> None:
        import keras

        # The same rows on all ranks, of which each takes its share.
        generator = np.random.default_rng(0)
        self._images = generator.normal(size=(rows, 32, 32, 3)).astype(np.float32)
        self._labels = generator.integers(0, 10, rows)
        self._how = {"batch_size": batch, "epochs": epochs, "verbose": 0}
        with scope:
            self._model = _model()
        self.epochs_s: list[float] = []
        self._clock = keras.callbacks.LambdaCallback(self._begin, self._end)

    def __call__(self) -> None:
        self._model.fit(self._images, self._labels, callbacks=[self._clock], **self._how)

    def _begin(self, epoch: int, logs: Any) -> None:
        self._start_s = time.perf_counter()

    def _end(self, epoch: int, logs: Any) -> None:
        self.epochs_s.append(time.perf_counter() - self._start_s)


def _model() -> Any:
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            *(layers.Conv2D(width, 3, 2, activation="relu") for width in (32, 64, 128)),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    return model
