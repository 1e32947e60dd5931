"""The case ``collectives``: time each operation by size, backend and peer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from mpistrat.bench.collectives_options import Grid, make_grid
from mpistrat.bench.harness.buffers import Memory, make_problems
from mpistrat.bench.harness.calibration import Budget
from mpistrat.bench.harness.expected_results import OPS, Task
from mpistrat.bench.harness.node_memory import check_node_memory
from mpistrat.bench.harness.row import Heading, Row, run_row
from mpistrat.bench.harness.session import Session, open_session
from mpistrat.bench.harness.sides import Side, backend_side, memcpy_side, peer_sides
from mpistrat.bench.options import (
    Backends,
    Json,
    Peers,
    Rounds,
    Seconds,
    parse_backends,
    split,
    told_by_rank_0,
    told_to_the_user,
)
from mpistrat.bench.peers import parse_peers
from mpistrat.bench.rows_table import report
from mpistrat.bench.sizes import parse_sizes

__all__ = ["command"]

_MEMCPY_FROM_BYTES = 1 << 20


def command(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    ops: Annotated[
        str, typer.Option(help=f"{', '.join(OPS)}: a comma list, or all.")
    ] = "allreduce",
    sizes: Annotated[
        str,
        typer.Option(
            "--bytes",
            help="Comma list of sizes (8, 4KiB, 1MB) and ranges FIRST:LAST, which go up in steps"
            " of 4 and end with LAST, or FIRST:LAST:FACTOR. A size is that of the larger buffer"
            " (all ranks' pieces together), rounded down to whole elements and equal pieces.",
        ),
    ] = "8,4KiB,64KiB,1MiB,16MiB",
    dtypes: Annotated[str, typer.Option(help="Comma list of NumPy dtypes.")] = "float32",
    reduction: Annotated[
        str, typer.Option(help="sum, prod, min, max, mean, and, or, xor; where the op reduces.")
    ] = "sum",
    backends: Backends = "auto",
    peers: Peers = "",
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Put the answer where the input was.")
    ] = False,
    registered: Annotated[
        bool, typer.Option("--registered", help="Take buffers from communicator.empty().")
    ] = False,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="As --registered, and give the ranks of a node one result between them, by"
            " communicator.empty(shared=True); allreduce only.",
        ),
    ] = False,
    new: Annotated[
        bool, typer.Option("--new", help="Also time calls without out=, whose results are new.")
    ] = False,
    memcpy: Annotated[
        bool | None,
        typer.Option(
            help="Compare allreduce with a bound: every rank at the same time copies as many"
            " bytes in its own memory. Default: from 1 MiB."
        ),
    ] = None,
    rounds: Rounds = 21,
    seconds: Seconds = 1.0,
    json: Json = None,
) -> None:
    """Time collectives: backends, peers and a copy take turns on the same buffers.

    Every side's answer is checked first; a wrong one ends the job after its row.
    A turn begins with a barrier; its calls follow each other without one, so
    the root of a rooted operation may run ahead of the slowest rank, whose time
    counts.
    """
    with told_to_the_user():
        names = parse_backends(backends), parse_peers(peers)
        memory = Memory.SHARED if shared else Memory.REGISTERED if registered else Memory.PRIVATE
        chosen = OPS if ops == "all" else split(ops, "ops")
        table = chosen, split(dtypes, "dtypes"), parse_sizes(sizes)
        grid = replace(make_grid(table, reduction, in_place, memory, memcpy), new=new)
    if not _run(grid, names, Budget(rounds, seconds), json):
        raise typer.Exit(1)


def _run(
    grid: Grid, names: tuple[Sequence[str], Sequence[str]], budget: Budget, json: Path | None
) -> bool:
    """Measure and report a grid; return whether all answers were right. **Collective.**

    `names` are those of the backends and the peers.
    """
    with open_session(*names) as session:
        with told_by_rank_0(session.communicator.rank):
            _check_memory(grid, session)
        tables = (
            (_row(task, grid, session, budget) for task in tasks)
            for tasks in grid.tables(session.communicator.rank, session.communicator.size)
        )
        return report(tables, session.communicator.rank, json)


def _check_memory(grid: Grid, session: Session) -> None:
    """Raise `UsageError` on all ranks if the largest buffers do not fit. **Collective.**"""
    largest = max(grid.sizes)
    # Registered buffers are those of each backend; the right answer is there, too.
    copies = 2 * (len(session.backends) if grid.memory.is_registered else 1) + 1
    what = f"buffers of {largest} bytes, {copies} of them,"
    check_node_memory(what, copies * largest, "pass fewer --bytes", session.communicator)


def _row(task: Task, grid: Grid, session: Session, budget: Budget) -> Row:
    problems, common = make_problems(task, session, grid.memory)
    sides: list[Side] = [
        backend_side(name, communicator, problems[name])
        for name, communicator in session.backends.items()
    ]
    if grid.new and task.op != "barrier":
        sides += [
            backend_side(name, communicator, problems[name], ", new", has_out=False)
            for name, communicator in session.backends.items()
        ]
    sides += peer_sides(session.peers, common)
    is_large = task.nbytes >= _MEMCPY_FROM_BYTES
    if task.op == "allreduce" and (is_large if grid.memcpy is None else grid.memcpy):
        sides.append(memcpy_side(task))
    heading = Heading("collectives", task, grid.memory.is_registered, grid.memory.is_shared)
    return run_row(heading, sides, [*problems.values(), common], session, budget)
