"""The case ``rows``: random rows of a table read and added to, by NumPy, the kernels and a shard.

Memory bounds all of them. A row of 64 float32 is four lines, and a line that is waited for takes
about 100 ns: 2.5 M rows/s, if they came one by one. The kernels ask for a row 16 rows before its
turn, so that as many lines are on their way as the core can track, and come near to what memory
moves: 512 bytes a row read, 768 a row added to. Measured on one core of a virtual machine, with
more or less other work on the other: 20 to 50 M rows/s read, 12 to 30 M added to; more in huge
pages, which shared memory has where the system allows it (transparent_hugepage/shmem_enabled).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import mpistrat
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.timing import Plan, Timing, measure
from mpistrat.bench.options import Json
from mpistrat.errors import MpistratError
from mpistrat.ps.storage.shard import Shard
from mpistrat.tables import rows as row_functions
from mpistrat.types import Array

__all__ = ["command"]

_DRAWS = 4  # of rows, in turn, so that none is in a cache still
_BASES = {"read": "numpy take", "add": "numpy add.at", "all": "numpy copyto"}

Sides = dict[str, Callable[[], object]]


def command(
    table_rows: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 1_000_000,
    columns: Annotated[int, typer.Option(min=1, help="float32 in a row.")] = 64,
    rows: Annotated[int, typer.Option(min=1, help="Random rows of a call.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 15,
    json: Json = None,
) -> None:
    """Time random rows and all of a table: NumPy, the kernels, and rank 0's shard in place."""
    communicator = mpistrat.MirroredStrategy().extended.communicator
    console = Console(quiet=communicator.rank != 0, highlight=False)
    shape, records = (table_rows, columns), []
    sides = _sides(shape, rows, communicator)
    for kind, functions in sides.items():
        timings = measure(functions, communicator, Plan(rounds, 1, 1))
        count = table_rows if kind == "all" else rows
        console.print(_table(kind, timings, count, shape, communicator.size))
        times = {name: timing.record() for name, timing in timings.items()}
        facts = {"case": "rows", "kind": kind, "ranks": communicator.size, "rows": count}
        records.append({**facts, "table": shape, "times": times})
    communicator.barrier()  # rank 0's shard is there until all have read it
    if json is not None and communicator.rank == 0:
        write_lines(json, records)


def _sides(
    shape: tuple[int, int], count: int, communicator: mpistrat.Communicator
) -> dict[str, Sides]:
    """Return the sides that are compared; each starts with an equal table of ones."""
    table = np.ones(shape, np.float32)
    own = Shard(table)  # added to: each rank its own, as servers do
    handle = communicator.bcast_object(own.handle() if communicator.rank == 0 else None)
    reader = own if communicator.rank == 0 else Shard.attach(handle)
    random = np.random.default_rng(communicator.rank)
    draws = cycle([random.integers(0, shape[0], count) for _ in range(_DRAWS)])
    # Zeros are added, so that the table stays ones and each side can be checked.
    out, values = np.empty((count, shape[1]), np.float32), np.zeros((count, shape[1]), np.float32)
    whole = np.empty_like(table)
    sides: dict[str, Sides] = {
        "read": {
            "numpy take": lambda: np.take(table, next(draws), axis=0, out=out, mode="clip"),
            "kernels": lambda: row_functions.take_rows(table, next(draws), out),
            "shard": lambda: reader.read_rows(next(draws), out),
            "shard, each row": lambda: reader.read_rows(next(draws), out, whole=False),
        },
        "add": {
            "numpy add.at": lambda: np.add.at(table, next(draws), values),
            "kernels": lambda: row_functions.add_rows(table, next(draws), values),
            "shard": lambda: own.add_rows(next(draws), values),
        },
        "all": {
            "numpy copyto": lambda: np.copyto(whole, table),
            "shard": lambda: reader.read(whole),
            "shard, view": lambda: _viewed(reader),
        },
    }
    _check(sides, {"read": out, "add": table, "all": whole})
    return sides


def _viewed(reader: Any) -> float:
    with reader.view() as view:
        return float(view[0, 0])


def _check(sides: Mapping[str, Sides], results: Mapping[str, Array]) -> None:
    """Run each side once and check it: rows of ones are read, and zeros are added."""
    for kind, functions in sides.items():
        for name, function in functions.items():
            if kind != "add":
                results[kind].fill(1 if "view" in name else 0)
            function()
            if not (results[kind] == 1).all():
                raise MpistratError(f"rows, {kind}: {name} gave numbers that are not 1")


def _table(
    kind: str, timings: Mapping[str, Timing], count: int, shape: tuple[int, int], ranks: int
) -> Table:
    what = "all rows" if kind == "all" else f"{count} random rows"
    title = f"{kind}: {what} of {shape[0]} x {shape[1]} float32, ranks: {ranks}"
    table = Table("", title=title, title_justify="left", box=None, pad_edge=False)
    table.header_style = table.title_style = "none"  # no escape codes: mpirun may write to a file
    base = timings[_BASES[kind]]
    for column in ("M rows/s, each rank", "min", "max", f"x {_BASES[kind]}"):
        table.add_column(column, justify="right")
    for name, timing in timings.items():
        rates = [count / us for us in (timing.median_us, timing.max_us, timing.min_us)]
        table.add_row(name, *(f"{r:.1f}" for r in rates), f"{timing.speedup(base):.2f}")
    return table
