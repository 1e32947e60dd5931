"""Parse options that several cases share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import typer

from mpistrat.bench.harness.json_lines import check_can_append
from mpistrat.bench.peers import PEERS
from mpistrat.cluster import mpi, report_once
from mpistrat.cluster.launcher.launch_variables import expected_size, local_size, was_launched
from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.collectives.backends.registry import available_backends
from mpistrat.errors import UsageError

__all__ = [
    "Backends",
    "Json",
    "Peers",
    "Rounds",
    "Seconds",
    "parse_backends",
    "parse_dtype",
    "split",
    "told_by_rank_0",
    "told_to_the_user",
]

_WRONG_OPTIONS = 2

Backends: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Backends to measure, a comma list of registered names; each gets a communicator of"
        " its own. One that cannot be used here is named and left out."
    ),
]
Peers: TypeAlias = Annotated[
    str,
    typer.Option(
        help=f"Libraries to compare with, 'all' or a comma list of {', '.join(PEERS)}: mpi4py is"
        " the running MPI's own blocking call, gloo is torch.distributed's, tensorflow is"
        " MultiWorkerMirroredStrategy. One that is not installed is named and left out. All but"
        " mpi4py keep threads of their own, which take time from the other sides."
    ),
]
Rounds: TypeAlias = Annotated[
    int,
    typer.Option(
        min=1,
        help="Turns of each side in a row; fewer, though not under 5, where --seconds is too"
        " short for that.",
    ),
]
Seconds: TypeAlias = Annotated[
    float,
    typer.Option(
        min=0.001,
        help="Time for all turns of a row, without warm-up. The calls in a turn are chosen by"
        " it: many of small messages, one of large ones.",
    ),
]


def _checked(path: Path | None) -> Path | None:
    """Refuse a file for JSON that rank 0 cannot append to, before anything is measured."""
    size, here = expected_size(), local_size()
    is_one_node = size is None or (here is not None and here[1] == size[1])
    if path is not None and is_one_node:
        with told_to_the_user():
            check_can_append(path)
    elif path is not None and report_once.is_reporter():  # other nodes need no such folder
        try:
            check_can_append(path)
        except UsageError as error:
            raise typer.BadParameter(str(error)) from error
    return path


Json: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        callback=_checked,
        help="Append a JSON object for each side of each row to this file, a line each.",
    ),
]


def parse_backends(text: str) -> list[str]:
    """Return the names in a comma list of backends, if all are known."""
    names, known = split(text, "backends"), ("auto", *available_backends())
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--backends {unknown[0]!r} is not known; expected {', '.join(known)}")
    return names


def split(text: str, what: str) -> list[str]:
    """Return the parts of a comma list, each once; raise `UsageError` if there are none."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise UsageError(f"--{what} {text!r}: expected names with commas between them")
    return list(dict.fromkeys(parts))


def parse_dtype(name: str) -> np.dtype:
    """Return the dtype of that name, if it can be sent."""
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    try:
        dtype = np.dtype(name)
    except TypeError as error:
        raise UsageError(f"dtype {name!r}: {error}; expected such as float32 or int8") from error
    as_array(np.empty(0, dtype))
    return dtype


@contextmanager
def told_to_the_user() -> Iterator[None]:
    """Turn a `UsageError` about options into a message without a traceback. **Local.**

    All ranks have the same options: before MPI starts, one rank tells it for all of them.
    """
    try:
        yield
    except UsageError as error:
        if was_launched() and mpi.world_place() is None:
            report_once.leave(_WRONG_OPTIONS, partial(_tell, str(error)))
        raise typer.BadParameter(str(error)) from error


@contextmanager
def told_by_rank_0(rank: int) -> Iterator[None]:
    """Turn a `UsageError` that all ranks raise together into a line of one of them."""
    try:
        yield
    except UsageError as error:
        if rank == 0:
            _tell(str(error))
        raise typer.Exit(_WRONG_OPTIONS) from error


def _tell(text: str) -> bool:
    print(f"mpistrat bench: {text}", file=sys.stderr, flush=True)
    return True
