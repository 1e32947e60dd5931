"""Check and time a training loop, and report it: what the cases strong, weak and train share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import typer
from rich.console import Console

from mpistrat import Communicator
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.training_loop.check import other_weights, why_wrong
from mpistrat.bench.training_loop.loop import Round, TrainingLoop
from mpistrat.bench.training_loop.parts import Steps, over_ranks
from mpistrat.bench.training_loop.table import print_record
from mpistrat.bench.training_loop.task import Task

__all__ = [
    "Layers",
    "StepCount",
    "Threads",
    "Units",
    "figures",
    "fitting_rounds",
    "number_of_ranks",
    "report",
    "run_task",
]

_MIN_ROUNDS = 3
_TRIAL_STEPS = 3
_WIDTH = 200  # mpirun shows a width that is not the terminal's; tables take what they need

Units: TypeAlias = Annotated[
    int, typer.Option(min=1, max=65_536, help="Size of each hidden layer.")
]
Layers: TypeAlias = Annotated[int, typer.Option(min=1, max=1000, help="Number of hidden layers.")]
StepCount: TypeAlias = Annotated[
    int,
    typer.Option(min=1, help="Timed steps in a round; each round begins with the same weights."),
]
Threads: TypeAlias = Annotated[
    int,
    typer.Option(
        min=1,
        help="Threads of a rank for NumPy's matrix products; the same for all numbers of ranks,"
        " so that their times can be compared.",
    ),
]


def number_of_ranks() -> int:
    """Return how many ranks the job has. **Collective.**"""
    with Communicator() as communicator:
        return communicator.size


def run_task(task: Task, rounds: int, seconds: float, json: Path | None) -> bool:
    """Check, measure and report; return whether all was right. **Collective.**"""
    loop = TrainingLoop(task)
    communicator = loop.strategy.communicator
    wrong = why_wrong(loop, task)
    if wrong is None:
        taken = _measure(loop, task, rounds, seconds)
        steps = over_ranks(np.stack([one.parts_us for one in taken]), communicator)
        wrong = other_weights(communicator, [one.numpy() for one in loop.variables])
    if wrong is None:
        measured = figures(steps, taken[0].losses, communicator, task.global_batch)
        report({**task.record(communicator.size), **measured}, communicator, json)
    elif communicator.rank == 0:
        print(f"{task.case}: {wrong}")
    loop.strategy.close()
    return wrong is None


def figures(
    steps: Steps, losses: list[float], communicator: Communicator, batch: int
) -> dict[str, Any]:
    """Return what was measured, for a JSON line. **Local.**"""
    topology = communicator.topology
    return {
        "side": "mpistrat",
        "kind": "backend",
        "backend": communicator.backend.name,
        "ranks": topology.size,
        "nodes": topology.num_nodes,
        "rounds": len(steps.slowest),
        "time_us": steps.times(),
        "steps_us": steps.medians_us,
        "examples_per_s": round(batch / steps.median_us * 1e6, 3),
        "parts_us": steps.parts(),
        "by_rank": steps.by_rank(topology.hostnames),
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "correct": True,  # else nothing is timed
    }


def report(record: dict[str, Any], communicator: Communicator, json: Path | None) -> None:
    """Print the tables on rank 0, and write the JSON line. **Local.**"""
    if communicator.rank == 0:
        print_record(Console(highlight=False, width=_WIDTH), record)
        if json is not None:
            write_lines(json, [record])


def fitting_rounds(rounds: int, seconds: float, round_s: float) -> int:
    """Return how many rounds fit into the time: 3 at least, unless fewer were asked for."""
    return min(rounds, max(_MIN_ROUNDS, int(seconds / round_s)))


def _measure(loop: TrainingLoop, task: Task, rounds: int, seconds: float) -> list[Round]:
    trial = np.median(loop.run(_TRIAL_STEPS).parts_us.sum(axis=1))
    # By the slowest rank's time, so that all ranks have as many rounds.
    step_us = float(loop.strategy.communicator.allreduce(np.array(trial), "max"))
    count = fitting_rounds(rounds, seconds, step_us * task.steps / 1e6)
    return [loop.run(task.steps) for _ in range(count)]
