"""The case ``ps``: pulls, pushes and calls per second of parameter servers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import mpistrat
from mpistrat import Communicator
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.ps_workload import KINDS, Served, Side, TableSize
from mpistrat.bench.harness.timing import Timing
from mpistrat.bench.options import Json, split, told_to_the_user
from mpistrat.bench.peers.parameter_servers import TensorFlowServers
from mpistrat.cluster_resolver import MPIClusterResolver
from mpistrat.errors import MpistratError, UsageError

__all__ = ["command"]

_MOST_CALLS, _WARM_UP = 4096, 8
_BASES = ("memcpy", "tensorflow")
_UNITS = {"rows": "M rows/s", "dense": "GB/s, each worker", "schedule": "us a function"}


def command(  # noqa: PLR0913, PLR0917 - each is an option
    what: Annotated[str, typer.Option(help=f"A comma list of {', '.join(KINDS)}.")] = "rows",
    num_ps: Annotated[int, typer.Option(min=1, help="Parameter servers.")] = 2,
    table_rows: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 1_000_000,
    columns: Annotated[int, typer.Option(min=1, help="float32 in a row.")] = 64,
    rows: Annotated[int, typer.Option(min=1, help="Random rows of a function.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 7,
    seconds: Annotated[float, typer.Option(min=0.001, help="Length of a turn, about.")] = 0.5,
    peers: Annotated[str, typer.Option(help="'tensorflow': compare with its own.")] = "",
    json: Json = None,
) -> None:
    """Time rows pulled and pushed, all of a table pulled, and functions; rank 0 is the chief."""
    with told_to_the_user():
        kinds = _kinds(what, peers)
    communicator = Communicator()
    size = TableSize(table_rows, columns, rows, communicator.size - 1 - num_ps)
    console = Console(quiet=communicator.rank != 0, highlight=False, width=120)
    with _open(communicator, num_ps, size, peers) as sides:
        for kind in kinds if sides else ():
            for name, timings in _measured(kind, sides, rounds, seconds):
                console.print(_table(name, kind, timings, size), "", sep="\n")
                if json is not None:
                    record = _record(name, kind, timings, size, communicator.size)
                    write_lines(json, [{**record, "num_ps": num_ps}])


def _kinds(what: str, peers: str) -> list[str]:
    kinds = split(what, "what")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UsageError(f"--what {unknown[0]!r}: expected a comma list of {', '.join(KINDS)}")
    if peers not in ("", "tensorflow", "all"):
        raise UsageError(f"--peers {peers!r}: expected tensorflow, or nothing")
    return kinds


@contextmanager
def _open(
    communicator: Communicator, num_ps: int, size: TableSize, peers: str
) -> Iterator[list[Side]]:
    """Yield the sides on the chief; the other ranks serve them meanwhile. **Collective.**"""
    resolver = MPIClusterResolver(num_ps=num_ps)
    peer = TensorFlowServers(communicator, resolver) if peers else None
    if peer is not None and peer.missing and communicator.rank == 0:
        print(f"peer tensorflow: left out, {peer.missing}")
    if resolver.task_type != "chief":
        mpistrat.Server(resolver).join()
        yield []
    else:
        partitioner = mpistrat.experimental.partitioners.FixedShardsPartitioner(num_ps)
        with (
            ExitStack() as stack,
            mpistrat.ParameterServerStrategy(resolver, partitioner) as strategy,
        ):
            sides: list[Side] = [Served(strategy, size)]
            if peer is not None and not peer.missing:
                sides.append(stack.enter_context(peer.side(size)))
            for side in sides:
                _check(side, size)
            yield sides
    communicator.barrier()  # a server that ends first would upset the others
    communicator.close()


def _check(side: Side, size: TableSize) -> None:
    """Raise unless pulls return the table's rows and pushes change them."""
    before = side.value()
    side.calls("rows")["push"][side.name](1)
    after = side.value()
    rows, values = side.pulled()
    subtracted = float(np.subtract(before, after, dtype=np.float64).sum())
    if not np.array_equal(values, after[rows]):
        raise MpistratError(f"ps: {side.name} pulled other rows than those it was asked for")
    # Rows may be drawn twice, and then are subtracted twice: the sum counts all of them.
    if subtracted != size.rows * size.columns:
        raise MpistratError(
            f"ps: {side.name} subtracted {subtracted:g} from the table; expected 1 from each of"
            f" {size.rows * size.columns} elements"
        )


def _measured(
    kind: str, sides: Sequence[Side], rounds: int, seconds: float
) -> Iterator[tuple[str, dict[str, Timing]]]:
    """Time all sides in turn; yield a call's name and each side's time for a function."""
    # All sides are open at once, so that they can take turns.
    found = [side.calls(kind) for side in sides]
    for name in found[0]:
        turns = {who: call for calls in found for who, call in calls[name].items()}
        counts = {who: _calls_in(call, seconds) for who, call in turns.items()}
        times: dict[str, list[float]] = {who: [] for who in turns}
        for round_ in range(rounds):
            # Every other round backwards: no side is always the one that follows another.
            for who in turns if round_ % 2 == 0 else reversed(turns):
                times[who].append(_took(turns[who], counts[who]) / counts[who] * 1e6)
        yield name, {who: Timing(tuple(each)) for who, each in times.items()}


def _took(call: Any, count: int) -> float:
    start = time.perf_counter()
    call(count)
    return time.perf_counter() - start


def _calls_in(call: Any, seconds: float) -> int:
    """Return how many functions fill a turn, after a warm-up."""
    call(_WARM_UP)
    count = 1
    # A function alone takes longer than one of many, which workers do at the same time.
    while _took(call, count) < seconds / 2 and count < _MOST_CALLS:
        count *= 2
    return count


def _figure(kind: str, function_us: float, size: TableSize) -> float:
    """Convert a function's time to the unit of its kind of call."""
    if kind == "rows":
        return size.rows / function_us
    return size.nbytes / function_us / 1e3 / size.num_workers if kind == "dense" else function_us


def _table(name: str, kind: str, timings: Mapping[str, Timing], size: TableSize) -> Table:
    title = f"{name}: {size.rows} rows" if kind == "rows" else f"{kind}: {name}"
    table = Table(title, box=None, pad_edge=False)
    table.header_style = "none"  # no escape codes: mpirun may write to a file
    bases = [who for who in _BASES if who in timings]
    for header in (_UNITS[kind], "min", "max", *(f"x {base}" for base in bases)):
        table.add_column(header, justify="right")
    for who, timing in timings.items():
        figures = [_figure(kind, us, size) for us in (timing.median_us, *timing.rounds_us)]
        cells = [figures[0], min(figures[1:]), max(figures[1:])]
        cells += [timing.speedup(timings[base]) for base in bases]
        table.add_row(who, *(f"{cell:.2f}" for cell in cells))
    return table


def _record(
    name: str, kind: str, timings: Mapping[str, Timing], size: TableSize, ranks: int
) -> dict[str, Any]:
    ours = next(iter(timings.values()))
    record = {
        "case": "ps",
        "kind": kind,
        "name": name,
        "ranks": ranks,
        "table": [size.table_rows, size.columns],
        "rows": size.rows,
        "times": {who: timing.record() for who, timing in timings.items()},
        "median": {w: round(_figure(kind, t.median_us, size), 3) for w, t in timings.items()},
    }
    ratios = {who: round(ours.speedup(one), 3) for who, one in timings.items() if one is not ours}
    return record | {"unit": _UNITS[kind], "ratios": ratios}
