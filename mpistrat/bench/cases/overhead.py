"""The case ``overhead``: time a strategy's calls against raw MPI, and the import."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import sleep
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import mpistrat
from mpistrat.bench.harness.import_time import Import, measure_imports
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.timing import Plan, Timing, measure
from mpistrat.bench.options import Json
from mpistrat.cluster import mpi
from mpistrat.errors import MpistratError

__all__ = ["command"]

_RAW = "mpi4py Allreduce"
_OURS = "strategy.reduce(ReduceOp.SUM, x)"
_BY_NAME = 'strategy.reduce("SUM", x)'
_BYTES = 8


def command(
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 31,
    repeats: Annotated[int, typer.Option(min=1, help="Calls in a turn.")] = 500,
    import_rounds: Annotated[int, typer.Option(min=1, help="Starts of each program.")] = 15,
    json: Json = None,
) -> None:
    """Time strategy.reduce of one float64 against mpi4py, and import mpistrat against numpy."""
    strategy = mpistrat.MirroredStrategy()
    communicator = strategy.extended.communicator
    console = Console(quiet=communicator.rank != 0, highlight=False)
    timings = measure(_sides(strategy), communicator, Plan(rounds, repeats, repeats))
    console.print(_reduce_table(timings, communicator.size))
    console.print(_verdict(timings), soft_wrap=True)
    with _alone(communicator) as is_chosen:
        if is_chosen:
            # On one rank: programs that start at the same time would compete for files and cores.
            imports = measure_imports(import_rounds)
            console.print(_import_table(imports))
            console.print(_packages(imports), soft_wrap=True)
            if json is not None:
                records = [_reduce_record(timings, communicator), _import_record(imports)]
                write_lines(json, records)


def _sides(strategy: mpistrat.Strategy) -> dict[str, Callable[[], Any]]:
    """Return the calls that are compared, after a check of each one's answer."""
    value = np.array(1.0)
    sides: dict[str, Callable[[], Any]] = {}
    world = mpi.world()
    if world is not None and world.size > 1:
        # The result's memory is made before, as a program around raw MPI does it.
        raw, total = world.Dup(), np.empty(())

        def allreduce() -> Any:
            raw.Allreduce(value, total)
            return total

        sides[_RAW] = allreduce
    sides[_OURS] = lambda: strategy.reduce(mpistrat.ReduceOp.SUM, value)
    sides[_BY_NAME] = lambda: strategy.reduce("SUM", value)
    for name, side in sides.items():
        if side() != strategy.num_replicas_in_sync:
            raise MpistratError(f"{name}: {side()}, expected {strategy.num_replicas_in_sync}")
    return sides


@contextmanager
def _alone(communicator: mpistrat.Communicator) -> Iterator[bool]:
    """Run a block on rank 0 while the other ranks sleep. **Collective.**"""
    is_chosen = communicator.rank == 0
    if is_chosen:
        try:
            yield True
        finally:
            communicator.barrier()
    else:
        yield False
        arrival = communicator.ibarrier()
        while not arrival.test():
            sleep(0.01)  # a waiting rank would otherwise keep a core busy
        arrival.wait()


def _reduce_table(timings: Mapping[str, Timing], ranks: int) -> Table:
    table = _table(f"sum of a float64 scalar over {ranks} ranks, {_BYTES} bytes", "us", "mpi4py")
    for name, timing in timings.items():
        _row(table, name, timing, timings.get(_RAW), 1.0)
    return table


def _verdict(timings: Mapping[str, Timing]) -> str:
    if _RAW not in timings:
        return "One rank: there is nothing to compare with. Start it with mpirun -n 2.\n"
    return (
        "Over rounds that take turns, on the slowest rank; the last column is the median of the"
        " rounds' differences.\n"
    )


def _import_table(imports: Mapping[str, Import]) -> Table:
    table = _table("import, in a new interpreter each time", "ms", "numpy")
    for name, one in imports.items():
        _row(table, name, one.timing, imports["numpy"].timing, 1e-3)
    return table


def _packages(imports: Mapping[str, Import]) -> str:
    rows = (f"  {name}: {', '.join(one.packages) or 'none'}" for name, one in imports.items())
    return "\n".join(["Third-party packages loaded by", *rows])


def _table(title: str, unit: str, base: str) -> Table:
    table = Table("", title=title, title_justify="left", box=None, pad_edge=False)
    table.header_style = table.title_style = "none"  # no escape codes: mpirun may write to a file
    for column in (f"median {unit}", f"min {unit}", f"max {unit}", f"over {base}"):
        table.add_column(column, justify="right")
    return table


def _row(table: Table, name: str, timing: Timing, base: Timing | None, factor: float) -> None:
    figures = [timing.median_us, timing.min_us, timing.max_us]
    if base is not None and base is not timing:
        figures.append(timing.minus(base).median_us)
    table.add_row(name, *(f"{figure * factor:.2f}" for figure in figures))


def _reduce_record(
    timings: Mapping[str, Timing], communicator: mpistrat.Communicator
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "case": "overhead",
        "ranks": communicator.size,
        "backend": communicator.backend.name,
        "bytes": _BYTES,
        "times": {name: timing.record() for name, timing in timings.items()},
    }
    if _RAW in timings:
        record["difference"] = {
            name: timings[name].minus(timings[_RAW]).record() for name in (_OURS, _BY_NAME)
        }
    return record


def _import_record(imports: Mapping[str, Import]) -> dict[str, Any]:
    base = imports["numpy"].timing
    return {
        "case": "import",
        "ranks": 1,
        "times": {name: one.timing.record() for name, one in imports.items()},
        "difference": {
            name: one.timing.minus(base).record() for name, one in list(imports.items())[1:]
        },
        "packages": {name: list(one.packages) for name, one in imports.items()},
    }
