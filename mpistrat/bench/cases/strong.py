"""The case ``strong``: a training loop whose global batch is the same for any number of ranks."""

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
from mpistrat.bench.training_loop.task import Task, check_batch
from mpistrat.bench.training_loop.threads import limited_threads

__all__ = ["command"]


def command(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    units: Units = 512,
    layers: Layers = 3,
    batch: Annotated[
        int, typer.Option(min=1, help="Examples in a step, over all ranks; each gets its share.")
    ] = 256,
    steps: StepCount = 30,
    threads: Threads = 1,
    rounds: Rounds = 7,
    seconds: Seconds = 10.0,
    json: Json = None,
) -> None:
    """Time a training loop with a fixed global batch: ideally twice the ranks halve the step.

    What all ranks learn together is first compared with what one process learns from the same
    batches; if that is wrong, nothing is timed and the exit status is 1.
    """
    with told_to_the_user(), limited_threads(threads):
        check_batch(batch, number_of_ranks())
        is_right = run_task(Task("strong", units, layers, batch, steps), rounds, seconds, json)
    if not is_right:
        raise typer.Exit(1)
