"""The case ``tune``: measure which algorithm is fastest at which size; save it in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console

from mpistrat import Communicator, config
from mpistrat.bench.tuning.between_nodes import WireSearch
from mpistrat.bench.tuning.comparison import Bench
from mpistrat.bench.tuning.on_gpus import GpuSearch, gpu_of_rank
from mpistrat.bench.tuning.on_node import NodeSearch
from mpistrat.bench.tuning.unmeasured_entries import Search, kept_of, on_rank_0
from mpistrat.collectives.backends.base import Backend
from mpistrat.collectives.backends.hierarchical import HierarchicalBackend
from mpistrat.collectives.backends.shared_memory import tuning_table
from mpistrat.collectives.backends.shm import ShmBackend
from mpistrat.errors import BackendError, UsageError

__all__ = ["command"]


def command(
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each candidate.")] = 9,
    calls: Annotated[
        str,
        typer.Option(
            help="Which kinds of call, a comma list; the others stay as they are. Default: all."
            " On several nodes there is wire in their place, and on GPUs gpu besides."
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="Table to write; default MPISTRAT_TUNING or the cache.")
    ] = None,
) -> None:
    """Measure what is fastest and write it down, for jobs of as many ranks and nodes.

    On one machine these are ways through its memory, on several sizes of messages between them;
    where every rank has a GPU, the ways between GPUs, too.
    """
    tuning_table.allow_missing()
    communicator = Communicator(backend="hierarchical")  # which is shm on one machine
    console = Console(quiet=communicator.rank != 0, highlight=False)
    if communicator.size < 2:
        raise BackendError("bench tune: one rank; start it with mpirun, on as many as jobs have")
    searches: list[Search] = [_search(Bench(communicator, console, rounds), communicator.backend)]
    device = gpu_of_rank(communicator)
    if device is not None:
        searches.append(GpuSearch(communicator, device, console, rounds))
    names = _names(calls, tuple(name for search in searches for name in search.names))
    asked = [(search, [name for name in names if name in search.names]) for search in searches]
    plans = [(search, its) for search, its in asked if its]
    # Before minutes of measuring: whether the file can be read, kept and written.
    kept = on_rank_0(communicator, lambda: [kept_of(_file(out), *plan) for plan in plans])
    for number, (search, its) in enumerate(plans):
        best = {name: search.best(name) for name in its}
        if kept is not None:
            # Only rank 0 gets here: the others hear of an error in the barrier below.
            with communicator.checking():  # that the file can still be written
                tuning_table.write(_file(out), search.key, {**kept[number], **best})
            console.print(f"{search.key}: written to {_file(out)}")
        communicator.barrier()
    communicator.close()


def _search(bench: Bench, backend: Backend) -> NodeSearch | WireSearch:
    if isinstance(backend, HierarchicalBackend):
        return WireSearch(bench, backend)
    return NodeSearch(bench, cast(ShmBackend, backend))


def _names(calls: str, known: tuple[str, ...]) -> list[str]:
    if not calls:
        return list(known)
    names = [name.strip() for name in calls.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"{unknown}" if unknown else f"{calls!r} names no kind of call"
        raise UsageError(f"bench tune: --calls {what}; expected some of {list(known)} here")
    return names


def _file(out: Path | None) -> Path:
    try:
        return out or config.tuning_file()
    except RuntimeError as error:  # there is no home folder
        raise UsageError(f"bench tune: {error}; say with --out where the table is") from error
