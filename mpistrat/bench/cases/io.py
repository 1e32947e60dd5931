"""The case ``io``: save and restore a checkpoint on all ranks, against a plain file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import mpistrat
from mpistrat.bench.checkpoint_io.folder import shared_folder
from mpistrat.bench.checkpoint_io.measurement import Measurement
from mpistrat.bench.checkpoint_io.report import print_records, records
from mpistrat.bench.checkpoint_io.saved_variables import LEAST_BYTES, SavedVariables
from mpistrat.bench.harness.json_lines import write_lines
from mpistrat.bench.harness.node_memory import check_node_memory
from mpistrat.bench.options import Json, Rounds, Seconds, told_to_the_user
from mpistrat.bench.sizes import parse_sizes
from mpistrat.errors import UsageError

__all__ = ["command"]

_COPIES = 4  # a rank's variables, what a restore has read, their expected bits, the plain array
_WIDTH = 200  # mpirun shows a width that is not the terminal's; tables take what they need


def command(
    nbytes: Annotated[
        str, typer.Option("--bytes", help="Size of all variables, as in 64MiB.")
    ] = "64MiB",
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where to write, on a file system that all ranks share: a folder is made in it,"
            " and deleted in the end. Default: the folder of temporary files, on one machine."
        ),
    ] = None,
    rounds: Rounds = 7,
    seconds: Seconds = 10.0,
    json: Json = None,
) -> None:
    """Time saves and restores of a checkpoint, against one file that rank 0 writes.

    What is restored is first compared with what was saved, bit by bit; if it is wrong, nothing is
    timed and the exit status is 1.
    """
    with told_to_the_user():
        size = _parse_bytes(nbytes)
        strategy = mpistrat.MirroredStrategy(["CPU:0"])
        communicator = strategy.communicator
        what = f"variables of {size} bytes, {_COPIES} times,"
        check_node_memory(what, _COPIES * size, "pass fewer --bytes", communicator)
        # A checkpoint and the plain file are there at once; some more for what describes them.
        with shared_folder(folder, 2 * size + (1 << 20), communicator) as path:
            variables = SavedVariables(strategy, size)
            measurement = Measurement(variables, path, communicator)
            wrong = measurement.why_wrong()
            times = {} if wrong else measurement.times(rounds, seconds)
        if communicator.rank == 0:
            _report(wrong, records(times, variables.nbytes, communicator), json)
        strategy.close()
    if wrong:
        raise typer.Exit(1)


def _report(wrong: str | None, found: list[dict[str, Any]], json: Path | None) -> None:
    console = Console(highlight=False, width=_WIDTH)
    if wrong is not None:
        console.print(wrong, markup=False)
        return
    print_records(console, found)
    if json is not None:
        write_lines(json, found)


def _parse_bytes(text: str) -> int:
    sizes = parse_sizes(text)
    if len(sizes) != 1 or sizes[0] < LEAST_BYTES:
        raise UsageError(
            f"--bytes {text!r}: expected one size of at least {LEAST_BYTES} bytes, as in 64MiB"
        )
    return sizes[0]
