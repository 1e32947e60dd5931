"""The case ``weak``: a training loop in which each rank has a batch of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from mpistrat.bench.options import Json, Rounds, Seconds, told_to_the_user
from mpistrat.bench.training_loop.scaling_case import (
    Layers,
    StepCount,
    Threads,
    Units,
    number_of_ranks,
    run_task,
)
from mpistrat.bench.training_loop.task import Task
from mpistrat.bench.training_loop.threads import limited_threads

__all__ = ["command"]


def command(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    units: Units = 512,
    layers: Layers = 3,
    batch: Annotated[int, typer.Option(min=1, help="Examples of each rank in a step.")] = 128,
    steps: StepCount = 30,
    threads: Threads = 1,
    rounds: Rounds = 7,
    seconds: Seconds = 10.0,
    json: Json = None,
) -> None:
    """Time a training loop with a fixed batch a rank: ideally the step stays as long.

    What all ranks learn together is first compared with what one process learns from the same
    batches; if that is wrong, nothing is timed and the exit status is 1.
    """
    with told_to_the_user(), limited_threads(threads):
        task = Task("weak", units, layers, batch * number_of_ranks(), steps)
        is_right = run_task(task, rounds, seconds, json)
    if not is_right:
        raise typer.Exit(1)
