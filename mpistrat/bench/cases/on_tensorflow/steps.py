"""The case ``steps``: what a training step of Keras takes, and what comparing the data costs.

Jobs of different sizes show what more ranks than cores cost; the two sides of one job show what
the comparison of the ranks' data costs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.timing import Plan, Timing, measure
from mpistrat.bench.options import Json

__all__ = ["command"]

_COMPARED, _NOT_COMPARED = "data compared", "not compared"
_BATCH = 64


class Network(str, Enum):
    """What is trained: its step takes some 15 ms (cnn) or 2 ms (mlp) on one core."""

    CNN = "cnn"
    MLP = "mlp"


def command(
    network: Annotated[Network, typer.Option(help="What is trained.")] = Network.CNN,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 7,
    steps: Annotated[int, typer.Option(min=1, help="Steps in a turn.")] = 100,
    json: Json = None,
) -> None:
    """Time steps of fit on batches of 64 rows over all ranks, at the default settings."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from mpistrat.tensorflow import MirroredStrategy

    strategy = MirroredStrategy()
    with strategy.scope():
        epoch = _epoch(network, steps)
    sides = {_COMPARED: _with_checks("1", epoch), _NOT_COMPARED: _with_checks("0", epoch)}
    timings = measure(sides, strategy.communicator, Plan(rounds, 1, 1))
    if strategy.is_chief:
        _report(timings, network, strategy.num_replicas_in_sync, steps, json)
    strategy.close()


def _epoch(network: Network, steps: int) -> Callable[[], object]:
    """Return a call that trains a new model for `steps` steps."""
    import keras
    import tensorflow as tf

    layers = keras.layers
    shape: tuple[int, ...]
    if network is Network.MLP:
        shape, hidden = (784,), [layers.Dense(128, "relu")]
    else:
        shape, hidden = (32, 32, 3), _convolutions(keras)
    model = keras.Sequential([keras.Input(shape), *hidden, layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    generator = np.random.default_rng(0)  # the same data on all ranks
    images = generator.normal(size=(_BATCH * steps, *shape)).astype(np.float32)
    labels = generator.integers(0, 10, len(images))
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(_BATCH).prefetch(2)
    # One model and one dataset for both sides, so that neither is traced in a turn.
    return lambda: model.fit(dataset, verbose=0)


def _convolutions(keras: Any) -> list[Any]:
    layers = keras.layers
    convolutions = [layers.Conv2D(width, 3, activation="relu") for width in (32, 64)]
    pooled = [layer for one in convolutions for layer in (one, layers.MaxPooling2D())]
    return [*pooled, layers.Flatten(), layers.Dense(64, "relu")]


def _with_checks(value: str, function: Callable[[], object]) -> Callable[[], None]:
    """Return `function` under ``MPISTRAT_CHECKS=value``.

    Of a strategy that exists only the data sets that it is given are concerned: its collectives
    were made with the program's own setting.
    """

    def call() -> None:
        before = os.environ.get("MPISTRAT_CHECKS")
        os.environ["MPISTRAT_CHECKS"] = value
        try:
            function()
        finally:
            if before is None:
                del os.environ["MPISTRAT_CHECKS"]
            else:
                os.environ["MPISTRAT_CHECKS"] = before

    return call


def _report(
    timings: dict[str, Timing], network: Network, ranks: int, steps: int, json: Path | None
) -> None:
    console = Console(highlight=False)
    times_ms = {name: timing.median_us / steps / 1e3 for name, timing in timings.items()}
    for name, time_ms in times_ms.items():
        console.print(f"{network.value}, {ranks} ranks, {name}: {time_ms:.2f} ms a step")
    ratio = timings[_NOT_COMPARED].speedup(timings[_COMPARED])
    console.print(f"Compared over not compared, median of the turns' ratios: {ratio:.3f}")
    if json is not None:
        figures = {name: round(time_ms, 4) for name, time_ms in times_ms.items()}
        record = {"case": "steps", "network": network.value, "ranks": ranks, "ms": figures}
        write_lines(json, [record | {"ratio": round(ratio, 4)}])
