"""The command ``mpistrat bench scale``: its options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mpistrat.bench.options import told_to_the_user
from mpistrat.bench.results.file import read_points
from mpistrat.bench.results.point import Point
from mpistrat.bench.scaling.allocation import find_allocation
from mpistrat.bench.scaling.batch_job import left_s
from mpistrat.bench.scaling.ending import Ended, ended_by_signals
from mpistrat.bench.scaling.launching import Start, find_start
from mpistrat.bench.scaling.output_lock import alone_with
from mpistrat.bench.scaling.page import check_page, make_page
from mpistrat.bench.scaling.planning import Planned, plan
from mpistrat.bench.scaling.progress import SuiteProgress
from mpistrat.bench.scaling.runner import run_suite
from mpistrat.bench.scaling.suite import Suite, read_suite, shipped_suites
from mpistrat.cluster.launcher.launch_variables import was_launched
from mpistrat.errors import ClusterError, UsageError
from mpistrat.system.files.output_paths import why_no_file

__all__ = ["command"]


def command(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    suite: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(shipped_suites())}, or a file of your own that ends in .toml."
        ),
    ] = "quick",
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Append a JSON object for each run to this file."),
    ] = Path("results.jsonl"),
    resume: Annotated[
        bool, typer.Option("--resume", help="If the file is there, go on: skip the runs in it.")
    ] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="As --resume, but do again what failed.")
    ] = False,
    launch: Annotated[
        str | None,
        typer.Option(
            help="Start ranks by this command, with {ranks}, {nodes} and {per_node} for the"
            " numbers. Default: srun in a Slurm job, else mpirun."
        ),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(help="Numbers of ranks, as in 1,2,4, instead of the suite's.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Nodes of the job. Default: what the scheduler says.")
    ] = None,
    per_node: Annotated[
        int | None,
        typer.Option(min=1, help="Most ranks on a node. Default: the scheduler's, or its cores."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=1, help="Seconds of the whole suite, instead of its own.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Runs of each setup, instead of the suite's.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random order of runs.")] = 0,
    is_list: Annotated[
        bool, typer.Option("--list", help="Only list the runs, in their order.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="Make this page of the results, as bench report does.")
    ] = None,
) -> None:
    """Run a suite of benchmarks over ranks and nodes, from one process in one allocation.

    Start it without mpirun: it starts the ranks of each run. A run that fails or takes too long
    is recorded as such, and the suite goes on; the exit status is then 1.
    """
    console = Console(highlight=False)
    with told_to_the_user():
        _check_is_alone()
        changes = {"ranks": _counts(ranks), "budget_s": budget, "repeats": repeats}
        chosen = _changed(read_suite(suite), changes)
        has = _results(output, resume or retry, retry)
        runs = plan(chosen, find_allocation(nodes, per_node), has, seed)
        if is_list:
            for one in runs:
                _say(console, one.setup.title)
            return
        if report is not None:
            check_page(report, output)
        start = _start(launch)
    _say(console, f"{chosen.title or suite}: {len(runs)} runs; results go to {output}")
    points = _run(runs, start, min(chosen.budget_s, left_s()), output, console)
    if report is not None:
        try:
            make_page(output, report, console)
        except UsageError as error:
            _say(console, f"no page: {error}")
    _report(console, runs, points, output)


def _start(launch: str | None) -> Start:
    try:
        return find_start(launch)
    except ClusterError as error:
        raise UsageError(str(error)) from error


def _run(
    runs: list[Planned], start: Start, budget_s: float, output: Path, console: Console
) -> list[Point]:
    """Do the runs; where that ends early, say so and exit."""
    try:
        with (
            told_to_the_user(),
            ended_by_signals(),
            alone_with(output),
            SuiteProgress(console, len(runs)) as progress,
        ):
            return run_suite(runs, start, budget_s, output, progress)
    except Ended as end:
        _say(console, f"ended by {end}; {output} has what was done, --resume goes on")
        raise typer.Exit(end.exit_status) from None
    except OSError as error:  # no room, or the folder is gone: --resume does the run again
        raise typer.BadParameter(f"--output {output}: {error}") from error


def _report(console: Console, runs: list[Planned], points: list[Point], output: Path) -> None:
    failed = [point for point in points if point.status != "ok"]
    left = len(runs) - len(points)
    if left:
        _say(console, f"{left} runs did not fit into the time; --resume does them")
    if failed:
        _say(console, f"{len(failed)} of {len(points)} runs failed; {output} says why")
        raise typer.Exit(1)
    _say(console, f"{len(points)} runs are in {output}")


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


def _check_is_alone() -> None:
    if was_launched():
        raise UsageError(
            "bench scale runs as one process and starts the ranks itself; start it without mpirun"
            " or srun, in the job's script"
        )


def _changed(suite: Suite, changes: Mapping[str, object]) -> Suite:
    given = {name: value for name, value in changes.items() if value is not None}
    # What the command line says holds for all runs, also for those with a value of their own.
    own = {name: None for name in given if name in {"ranks", "repeats"}}
    runs = tuple(run.model_copy(update=own) for run in suite.run)
    return suite.model_copy(update={**given, "run": runs})


def _counts(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"--ranks {text!r}: expected numbers above 0 with commas between them")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _results(file: Path, may_exist: bool, leaves_failed: bool) -> list[Point]:
    """Return the points of a file of results that are not to be done again."""
    if why := why_no_file(file):
        raise UsageError(f"--output {file}: {why}")
    if not file.exists():
        return []
    if not may_exist:
        raise UsageError(
            f"--output {file} is there already: --resume goes on with it, or give another name"
        )
    try:
        points = read_points([file])
    except UsageError as error:
        raise UsageError(f"{error}; choose another --output") from error
    return [one for one in points if one.status == "ok" or not leaves_failed]
