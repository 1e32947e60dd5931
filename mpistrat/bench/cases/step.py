"""The case ``step``: one training step's communication, with simulated computation.

It has what a training loop has: gradients appear one after the other, the last layer's first, and
are summed in buckets, after the computation or while it goes on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mpistrat.bench.harness.calibration import Budget, measure_within
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.session import Session, open_session
from mpistrat.bench.models.catalogue import MODELS, gradient_set
from mpistrat.bench.options import (
    Backends,
    Json,
    Rounds,
    Seconds,
    parse_backends,
    told_to_the_user,
)
from mpistrat.bench.training_step.buckets import gathered_bytes
from mpistrat.bench.training_step.figures import Figures, Traffic, figures_of
from mpistrat.bench.training_step.memory import check_memory
from mpistrat.bench.training_step.plan import StepPlan, parse_bucket_bytes
from mpistrat.bench.training_step.sides import StepSide, make_sides
from mpistrat.bench.training_step.step import Step
from mpistrat.bench.training_step.table import print_figures

__all__ = ["command"]

_WIDTH = 200  # mpirun shows a width that is not the terminal's; tables take what they need


def command(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    model: Annotated[
        str, typer.Option(help=f"Whose gradients are reduced: {', '.join(MODELS)}.")
    ] = "resnet50",
    scale: Annotated[
        float, typer.Option(help="The fraction of each gradient's largest dimension to keep.")
    ] = 1.0,
    compute_ms: Annotated[
        float, typer.Option(min=0, max=60_000, help="Time of a rank's simulated backward pass.")
    ] = 20.0,
    bucket_bytes: Annotated[
        str, typer.Option(help="Size of a bucket, as in 25MiB; larger gradients have their own.")
    ] = "25MiB",
    overlap: Annotated[
        bool, typer.Option(help="Also reduce buckets while the next gradients are computed.")
    ] = True,
    mpi4py: Annotated[bool, typer.Option(help="Compare with MPI's own Iallreduce.")] = True,
    backends: Backends = "auto",
    rounds: Rounds = 11,
    seconds: Seconds = 10.0,
    json: Json = None,
) -> None:
    """Time a training step: compute gradients and sum them, in sequence and overlapped.

    Every answer is checked first; if one is wrong, nothing is timed and the exit status is 1.
    The rows of dlrm's tables are gathered; the gradients of the other networks are dense.
    """
    with told_to_the_user():
        names = parse_backends(backends), ["mpi4py"] if mpi4py else []
        nbytes = parse_bucket_bytes(bucket_bytes)
        plan = StepPlan(gradient_set(model, scale), nbytes, compute_ms, overlap)
        with open_session(*names) as session:
            check_memory(plan.gradients, session)
            is_right = _run(plan, session, Budget(rounds, seconds), json)
    if not is_right:
        raise typer.Exit(1)


def _run(plan: StepPlan, session: Session, budget: Budget, json: Path | None) -> bool:
    """Check, measure and report; return whether all answers were right. **Collective.**"""
    rank = session.communicator.rank
    console = Console(quiet=rank != 0, highlight=False, width=_WIDTH)
    step = plan.make_step(session)
    sides = make_sides(step, session, plan.overlap)
    wrong = [one.side.label.text for one in sides if not session.agree(one.side.is_right())]
    if wrong:
        messages = (f"{text}: the gradients of {plan.gradients.name} are wrong" for text in wrong)
        console.print(*messages, sep="\n")
        return False
    figures, traffic = _measure(sides, session, budget), _traffic(plan, step, session)
    print_figures(console, plan.title(step, session), figures, traffic)
    if json is not None and rank == 0:
        shared = plan.record(step, session)
        write_lines(json, [{**shared, **one.record(traffic)} for one in figures])
    return True


def _measure(sides: list[StepSide], session: Session, budget: Budget) -> list[Figures]:
    calls = [one.side.call for one in sides]
    return figures_of(sides, measure_within(calls, session.communicator, budget))


def _traffic(plan: StepPlan, step: Step, session: Session) -> Traffic:
    gathered = gathered_bytes(step.buckets)
    return Traffic(plan.gradients.nbytes, gathered, session.communicator.size)
