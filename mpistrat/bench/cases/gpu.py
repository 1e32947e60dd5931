"""The case ``gpu``: kernels against a copy on the GPU, all-reduce of the job's ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mpistrat import Communicator
from mpistrat.bench.gpu.allreduce import measure_allreduce
from mpistrat.bench.gpu.device import gpu_facts, why_no_gpu
from mpistrat.bench.gpu.families import FAMILIES, planned
from mpistrat.bench.gpu.families.torch_views import why_no_torch
from mpistrat.bench.gpu.kernels import measure_kernels
from mpistrat.bench.gpu.ranks import open_gpu_session, own_gpu
from mpistrat.bench.gpu.report import Report
from mpistrat.bench.harness.calibration import Budget
from mpistrat.bench.harness.resnet50_shapes import gradient_shapes
from mpistrat.bench.options import Json, Rounds, Seconds, split, told_to_the_user
from mpistrat.bench.sizes import parse_sizes
from mpistrat.errors import UsageError

__all__ = ["command"]

_PARTS = ("kernels", "allreduce")
_ALL = len(gradient_shapes())


@dataclass(frozen=True)
class _Options:
    """What is measured, parsed."""

    parts: Sequence[str]
    families: Sequence[str]
    sizes: Sequence[int]
    allreduce_sizes: Sequence[int]
    buffers: Sequence[int]
    variables: int
    gpus: int | None
    budget: Budget
    json: Path | None


def command(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    parts: Annotated[
        str,
        typer.Option(
            help="Comma list of kernels and allreduce; auto: both on one rank, allreduce on"
            " several."
        ),
    ] = "auto",
    families: Annotated[
        str,
        typer.Option(help=f"Kernels to measure: all, or a list of {', '.join(FAMILIES)}."),
    ] = "all",
    sizes: Annotated[
        str,
        typer.Option(
            "--bytes",
            help="Sizes of a buffer of the kernels: a comma list (64KiB, 1MB) of sizes and ranges"
            " FIRST:LAST or FIRST:LAST:FACTOR.",
        ),
    ] = "64KiB,1MiB,16MiB,64MiB,256MiB",
    allreduce_sizes: Annotated[
        str, typer.Option("--allreduce-bytes", help="Sizes of each rank's array.")
    ] = "8,4KiB,64KiB,1MiB,16MiB,64MiB,256MiB",
    buffers: Annotated[
        str, typer.Option(help="How many buffers the kernels reduce, a comma list.")
    ] = "2,4,8",
    variables: Annotated[
        int,
        typer.Option(
            min=1,
            max=_ALL,
            help=f"How many of ResNet-50's {_ALL} tensors are packed and updated.",
        ),
    ] = _ALL,
    gpus: Annotated[
        int | None,
        typer.Option(
            min=1, help="Use the first so many GPUs of a node, in turn; 1: all ranks share one."
        ),
    ] = None,
    rounds: Rounds = 11,
    seconds: Seconds = 0.4,
    json: Json = None,
) -> None:
    """Time kernels and all-reduce on GPUs, against a copy and what users would write.

    Every answer is checked before anything is timed. Exit status 1: one was
    wrong; 2: there is no GPU or no CuPy, there are fewer GPUs than --gpus, or
    several ranks are to measure kernels. Bars say which figures are expected
    of an H100 or H200; a missed one is printed, and changes nothing else.
    """
    with told_to_the_user():
        options = _Options(
            () if parts == "auto" else _known("parts", parts, _PARTS),
            FAMILIES if families == "all" else _known("families", families, FAMILIES),
            parse_sizes(sizes),
            parse_sizes(allreduce_sizes),
            [_count(one) for one in split(buffers, "buffers")],
            variables,
            gpus,
            Budget(rounds, seconds),
            json,
        )
    status = _run(options)
    if status:
        raise typer.Exit(status)


def _run(options: _Options) -> int:
    with Communicator() as communicator:
        mine = why_no_gpu(options.gpus or 1)
        reasons = [why for why in communicator.allgather_object(mine) if why]
        if reasons:
            if communicator.rank == 0:
                typer.echo(f"bench gpu: {reasons[0]}", err=True)
            return 2
        if "kernels" in options.parts and communicator.size > 1:
            if communicator.rank == 0:
                typer.echo("bench gpu: one rank alone measures kernels; start no more", err=True)
            return 2
        import cupy

        with cupy.cuda.Device(own_gpu(communicator, options.gpus)):
            return _measure(communicator, options)


def _measure(communicator: Communicator, options: _Options) -> int:
    """Measure the parts; return the exit status. **Collective.**"""
    report = Report(gpu_facts(), communicator.rank, options.json)
    parts = options.parts or (_PARTS if communicator.size == 1 else _PARTS[1:])
    report.say(", ".join(f"{name} {value}" for name, value in report.facts.items()))
    if "kernels" in parts:
        if why := why_no_torch():
            report.say(f"torch: left out, {why}")
        grid = (options.sizes, options.buffers, options.variables)
        plans = planned(options.families, *grid)
        report.kernels(measure_kernels(plans, options.budget, report.say))
    if "allreduce" in parts:
        with open_gpu_session(communicator, report.say) as session:
            sizes = options.allreduce_sizes
            report.allreduce(measure_allreduce(session, sizes, options.budget, report.say))
    wrong = communicator.allgather_object(not report.conclude())
    return 1 if any(wrong) else 0


def _known(option: str, text: str, known: Sequence[str]) -> list[str]:
    names = split(text, option)
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--{option}: {unknown[0]!r} is not known; expected {', '.join(known)}")
    return names


def _count(text: str) -> int:
    if not text.isdigit() or not 2 <= int(text) <= 16:
        raise UsageError(f"--buffers {text!r}: expected numbers from 2 to 16")
    return int(text)
