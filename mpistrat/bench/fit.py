"""The case ``fit``: Keras on all ranks against as many unrelated programs side by side."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from mpistrat import Communicator
from mpistrat.bench.record import write_lines
from mpistrat.bench.timing import Plan, measure

__all__ = ["command"]

_ALONE, _TOGETHER = "side by side", "together"


def command(
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 7,
    steps: Annotated[int, typer.Option(min=1, help="Steps in an epoch.")] = 20,
    batch: Annotated[int, typer.Option(min=1, help="Images of a rank in a step.")] = 64,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs in a turn.")] = 1,
    json: Annotated[Path | None, typer.Option(help="Append JSON lines to this file.")] = None,
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
    console.print(f"A step alone takes {step_ms:.0f} ms; together reaches {share:.1%}.\n")
    if json is not None and communicator.rank == 0:
        record = {"case": "fit", "ranks": communicator.size, "step_ms": round(step_ms, 2)}
        write_lines(json, [record | {"efficiency": round(share, 4)}])
    communicator.close()


def _sides(ranks: int, steps: int, batch: int, epochs: int) -> dict[str, Callable[[], Any]]:
    import tensorflow as tf

    from mpistrat.tensorflow import MirroredStrategy

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = MirroredStrategy()
    return {
        _ALONE: _fit(nullcontext(), steps * batch, batch, epochs),
        _TOGETHER: _fit(strategy.scope(), ranks * steps * batch, ranks * batch, epochs),
    }


def _fit(
    scope: AbstractContextManager[Any], rows: int, batch: int, epochs: int
) -> Callable[[], Any]:
    """Return a call of fit of a model that is made in `scope`."""
    import keras

    layers = keras.layers
    generator = np.random.default_rng(0)
    images = generator.normal(size=(rows, 32, 32, 3)).astype(np.float32)
    labels = generator.integers(0, 10, rows)
    with scope:
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
    return lambda: model.fit(images, labels, batch_size=batch, epochs=epochs, verbose=0)
