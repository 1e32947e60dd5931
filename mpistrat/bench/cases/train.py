"""The case ``train``: a network that learns on all ranks, by arrays or by Keras."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from mpistrat.bench.options import Json, Rounds, Seconds, told_to_the_user
from mpistrat.bench.training_loop.keras_case import run_keras
from mpistrat.bench.training_loop.scaling_case import (
    StepCount,
    Threads,
    number_of_ranks,
    run_task,
)
from mpistrat.bench.training_loop.task import Task, check_batch
from mpistrat.bench.training_loop.threads import limited_threads

__all__ = ["command"]

_UNITS, _LAYERS = 256, 2


class Family(str, Enum):
    """What the program is written in."""

    ARRAYS = "arrays"
    KERAS = "keras"


def command(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    family: Annotated[
        Family,
        typer.Option(
            help="arrays: a perceptron of NumPy arrays under mpistrat.MirroredStrategy; keras: fit"
            " of a small convolutional network under that of mpistrat.tensorflow."
        ),
    ] = Family.ARRAYS,
    batch: Annotated[
        int, typer.Option(min=1, help="Examples in a step, over all ranks; each gets its share.")
    ] = 256,
    steps: StepCount = 50,
    threads: Threads = 1,
    rounds: Rounds = 7,
    seconds: Seconds = 10.0,
    json: Json = None,
) -> None:
    """Time the training of a fixed network, with a fixed global batch.

    The losses and weights are first compared with those of one process; if they are wrong,
    nothing is timed and the exit status is 1. Of Keras only whole steps are timed.
    """
    with told_to_the_user(), limited_threads(threads):
        check_batch(batch, number_of_ranks())
        if family is Family.KERAS:
            is_right = run_keras(batch, steps, threads, rounds, seconds, json)
        else:
            task = Task("train", _UNITS, _LAYERS, batch, steps)
            is_right = run_task(task, rounds, seconds, json)
    if not is_right:
        raise typer.Exit(1)
