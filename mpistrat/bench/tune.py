"""The case ``tune``: find where one way through shared memory gives way to another; keep it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import ml_dtypes
import numpy as np
import typer
from rich.console import Console

from mpistrat import Communicator, config
from mpistrat.bench.timing import Plan, measure
from mpistrat.collectives.shared import tuning
from mpistrat.collectives.shared.tuning import CALLS, HALVES, Tuning
from mpistrat.collectives.shm import ShmBackend
from mpistrat.errors import BackendError, UsageError
from mpistrat.types import Array

__all__ = ["command"]

_KIB, _MIB = 1 << 10, 1 << 20
_NEVER = 1 << 50
_GAIN = 0.97  # a change has to be faster by this factor; less is noise
_CHUNKS = (64 * _KIB, 128 * _KIB, 256 * _KIB)
_FLAT = tuple(2**power * _KIB for power in range(2, 9))
_WHOLE = tuple(2**power * _KIB for power in range(7, 17))
_REMOTE = tuple(2**power * _KIB for power in range(7, 15))
_NAMES = (*CALLS, "allreduce" + HALVES)
_REMOTE_CALLS = ("allreduce", "reduce_scatter", "allgather", "gather", "scatter", "alltoall")
_STREAMED = ("allreduce", "reduce", "bcast", "allgather", "gather")
_STREAM = tuple(2**power * _MIB for power in range(1, 8))


def command(
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each candidate.")] = 9,
    calls: Annotated[
        str, typer.Option(help="Which kinds of call, a comma list; the others stay as they are.")
    ] = ",".join(_NAMES),
    out: Annotated[
        Path | None, typer.Option(help="Table to write; default MPISTRAT_TUNING or the cache.")
    ] = None,
) -> None:
    """Measure calls on one machine and write what is fastest, for jobs of as many ranks."""
    communicator = Communicator(backend="shm")
    console = Console(quiet=communicator.rank != 0, highlight=False)
    if communicator.size < 2:
        raise BackendError("bench tune: one rank; start it with mpirun, on as many as jobs have")
    file = out or config.tuning_file()
    with communicator.checking():  # before all the measuring
        best = tuning.entry(file, communicator.size)
    for name in _names(calls):
        best[name] = _tune(_Trial(communicator, console, rounds, name), communicator.size)
    if communicator.rank == 0:
        with communicator.checking():  # that the file can be written
            tuning.write(file, communicator.size, best)
        console.print(f"{tuning.key(communicator.size)}: written to {file}")
    communicator.barrier()
    communicator.close()


def _names(calls: str) -> list[str]:
    names = [name.strip() for name in calls.split(",")]
    unknown = [name for name in names if name not in _NAMES]
    if unknown:
        raise UsageError(f"bench tune: --calls {unknown}; expected some of {list(_NAMES)}")
    return names


def _tune(trial: _Trial, num_ranks: int) -> Tuning:
    """Return what is fastest for one kind of call."""
    best = Tuning()
    for nbytes in _CHUNKS:
        best = trial.better(4 * _MIB, best, replace(best, chunk_bytes=nbytes))
    if trial.call in ("allreduce", "reduce"):
        if num_ranks == 2:  # only two reduce whole chunks, and so need no other way in one step
            best = replace(best, whole_bytes=trial.last(best, "whole_bytes", _WHOLE))
        else:
            best = replace(best, flat_bytes=trial.last(best, "flat_bytes", _FLAT))
    if trial.call in _STREAMED:
        best = replace(best, stream_bytes=trial.first(best, "stream_bytes", _STREAM))
    if trial.call in _REMOTE_CALLS:
        best = replace(best, remote_bytes=trial.first(best, "remote_bytes", _REMOTE))
    return best


class _Trial:
    """Comparisons of two tunings by one kind of call, of float32 or bfloat16. **Collective.**"""

    def __init__(
        self, communicator: Communicator, console: Console, rounds: int, name: str
    ) -> None:
        self._communicator, self._console, self._rounds = communicator, console, rounds
        self._name, self.call = name, name.removesuffix(HALVES)
        self._dtype = np.dtype(np.float32 if name == self.call else ml_dtypes.bfloat16)

    def last(self, base: Tuning, name: str, sizes: Sequence[int]) -> int:
        """Return the longest of `sizes` (of all ranks, if flat) at which the way below wins."""
        limit = 1
        for nbytes in sizes:
            length = nbytes // self._communicator.size if name == "flat_bytes" else nbytes
            without, way = (replace(base, **{name: value}) for value in (1, _NEVER))
            if self.better(length, without, way) is without:
                break
            limit = nbytes
        return limit

    def first(self, base: Tuning, name: str, sizes: Sequence[int]) -> int:
        """Return the shortest of `sizes` from which on the way above wins."""
        for nbytes in sizes:
            without, way = (replace(base, **{name: value}) for value in (_NEVER, 1))
            if self.better(nbytes, without, way) is way:
                return nbytes
        return _NEVER

    def better(self, nbytes: int, one: Tuning, other: Tuning) -> Tuning:
        """Return `other` if it is clearly faster for arrays of `nbytes`, else `one`."""
        source = np.ones(max(1, nbytes // self._dtype.itemsize), self._dtype)
        result = np.empty_like(source)
        sides = {
            name: partial(self._run, source, result, way)
            for name, way in (("one", one), ("other", other))
        }
        repeats = max(2, min(2000, 40 * _MIB // (nbytes + 20 * _KIB)))
        times = measure(sides, self._communicator, Plan(self._rounds, repeats, 2))
        ratio = times["other"].median_us / times["one"].median_us
        chosen = other if ratio < _GAIN else one
        ways = ", ".join(f"{key}={value}" for key, value in asdict(other).items() if value)
        self._console.print(f"{self._name}, {nbytes} bytes: {ratio:.2f} of the time with {ways}")
        return chosen

    def _run(self, source: Array, result: Array, way: Tuning) -> None:
        backend = self._communicator.backend
        if isinstance(backend, ShmBackend):
            backend.tune({self._name: way})
        method = getattr(self._communicator, self.call)
        if self.call == "allreduce":
            method(source, out=result)
        elif self.call == "scatter" and self._communicator.rank != 0:
            method(None)
        else:
            method(source)
