"""The case ``startup``: the time until the first call has ended, and what each rank then holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from mpistrat import Communicator
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.options import Json, told_to_the_user
from mpistrat.bench.startup.figures import Figures, Start
from mpistrat.bench.startup.process import Holdings, began_s, now_s
from mpistrat.cluster import mpi

__all__ = ["command"]

_LEGEND = (
    "Times are the median and the most of all ranks. spawn: how much later a process began than"
    " the first one of its node; imports: Python and this program; mpi: MPI_Init; all: from the"
    " first process of the node to the end of the rank's first all-reduce. PSS: pages that several"
    " processes have mapped count in equal shares."
)


def command(
    backend: Annotated[str, typer.Option(help="Of the communicator, a registered name.")] = "auto",
    json: Json = None,
) -> None:
    """Time the start of a job up to its first all-reduce, and count what each rank then holds.

    The start is that of this very job: start it with mpirun for each measurement. `bench scale`
    starts MPI before its cases, so that there the time of MPI_Init is part of the imports.
    """
    at_s = [now_s()]
    with told_to_the_user():
        began = began_s()
        mpi.world()
        at_s.append(now_s())
        communicator = Communicator(backend=backend)
    at_s.append(now_s())
    total = communicator.allreduce(np.array([communicator.rank + 1]))
    at_s.append(now_s())
    is_right = int(total[0]) * 2 == communicator.size * (communicator.size + 1)
    figures, all_right = _gathered(communicator, began, at_s, is_right)
    if communicator.rank == 0:
        _show(figures, communicator, all_right)
        if json is not None:
            write_lines(json, [figures.record(backend, all_right)])
    communicator.close()
    if not all_right:
        raise typer.Exit(1)


def _gathered(
    communicator: Communicator, began: float, at_s: Sequence[float], is_right: bool
) -> tuple[Figures, bool]:
    """Return the figures of all ranks, and whether all sums were right. **Collective.**"""
    communicator.barrier()  # all ranks have made their first call, and hold what it needs
    mine = Start(communicator.topology.node, began, tuple(at_s), Holdings.now())
    everyone = communicator.allgather_object((mine, is_right))
    return Figures(tuple(start for start, _ in everyone)), all(right for _, right in everyone)


def _show(figures: Figures, communicator: Communicator, is_right: bool) -> None:
    console = Console(highlight=False, width=120)
    ranks, nodes = communicator.size, figures.nodes
    table = Table(box=None, pad_edge=False)
    table.header_style = "none"  # no escape codes: mpirun may write to a file
    table.add_column("startup", no_wrap=True)
    table.add_column("median, most", no_wrap=True)
    for name, text in figures.described().items():
        table.add_row(name, text)
    console.print(f"start of {ranks} ranks on {nodes} nodes", table, "", _LEGEND, sep="\n")
    if not is_right:
        console.print("the first all-reduce has a wrong result")
