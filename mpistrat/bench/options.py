"""Parse options that several cases share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import typer

from mpistrat.bench.peers import PEERS
from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.errors import UsageError

__all__ = [
    "Backends",
    "Json",
    "Peers",
    "Rounds",
    "Seconds",
    "parse_dtype",
    "split",
    "told_to_the_user",
]

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
Json: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Append a JSON object for each side of each row to this file, a line each."),
]


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
    """Turn a `UsageError` about options into a message without a traceback. **Local.**"""
    try:
        yield
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error
