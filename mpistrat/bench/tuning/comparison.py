"""Compare two tunings by time, for the case ``tune``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from typing import Generic, TypeVar

import ml_dtypes
import numpy as np
from rich.console import Console

from mpistrat import Communicator
from mpistrat.bench.harness.timing import Plan, measure, seconds
from mpistrat.collectives.backends.shared_memory.tuning import HALVES, Tuning, WireTuning
from mpistrat.types import Array

__all__ = ["NEVER", "Bench", "Trial"]

NEVER = 1 << 50
_GAIN = 0.97  # a change has to be faster by this factor; less is noise
_TURN_S, _MOST_CALLS = 0.02, 2000  # that a candidate has in each of its turns

_Way = TypeVar("_Way", Tuning, WireTuning)


class Bench:
    """What all trials use: the ranks, where results are said, turns of each candidate."""

    def __init__(self, communicator: Communicator, console: Console, rounds: int) -> None:
        self.communicator, self.console, self.rounds = communicator, console, rounds


class Trial(Generic[_Way]):
    """Comparisons of two tunings by some kinds of call, one after the other. **Collective.**

    Parameters
    ----------
    bench
        What all trials use.
    tune
        Makes a tuning hold for the calls to come.
    calls
        Their names.
    halves
        Whether the arrays are of bfloat16; else of float32.
    """

    def __init__(
        self, bench: Bench, tune: Callable[[_Way], None], *calls: str, halves: bool = False
    ) -> None:
        self._bench, self._calls = bench, calls
        self._tune: Callable[[_Way], None] = tune
        self._name = " + ".join(calls) + HALVES * halves
        self._dtype = np.dtype(ml_dtypes.bfloat16 if halves else np.float32)

    def last(self, base: _Way, name: str, sizes: Sequence[int], ranks: int = 1) -> int:
        """Return the longest of `sizes` (of `ranks` together) at which the way below wins."""
        limit = 1
        for nbytes in sizes:
            without, way = (replace(base, **{name: value}) for value in (1, NEVER))
            if self.better(nbytes // ranks, without, way) is without:
                break
            limit = nbytes
        return limit

    def first(self, base: _Way, name: str, sizes: Sequence[int]) -> int:
        """Return the shortest of `sizes` from which on the way above wins."""
        for nbytes in sizes:
            without, way = (replace(base, **{name: value}) for value in (NEVER, 1))
            if self.better(nbytes, without, way) is way:
                return nbytes
        return NEVER

    def stepwise(
        self, base: _Way, name: str, sizes: Sequence[int], length: Callable[[int, int], int]
    ) -> _Way:
        """Go up or down the `sizes`, from that of `base`, for as long as that wins.

        Parameters
        ----------
        base
            With one of `sizes` under `name`.
        name
            The figure that is changed.
        sizes
            In ascending order.
        length
            Returns at which bytes two sizes that follow each other differ.
        """
        at = sizes.index(getattr(base, name))
        for way in (sizes[at:], sizes[at::-1]):
            best = base
            for old, new in pairwise(way):
                other = replace(best, **{name: new})
                if self.better(length(old, new), best, other) is best:
                    break
                best = other
            if best is not base:
                break
        return best

    def better(self, nbytes: int, one: _Way, other: _Way) -> _Way:
        """Return `other` if it is clearly faster for arrays of `nbytes`, else `one`."""
        source = np.ones(max(1, nbytes // self._dtype.itemsize), self._dtype)
        result = np.empty_like(source)
        sides = {
            name: partial(self._run, source, result, way)
            for name, way in (("one", one), ("other", other))
        }
        plan = Plan(self._bench.rounds, self._repeats(sides["one"]), 1)
        times = measure(sides, self._bench.communicator, plan)
        ratio = times["other"].median_us / times["one"].median_us
        chosen = other if ratio < _GAIN else one
        before = asdict(one)
        ways = ", ".join(
            f"{k}={value}" for k, value in asdict(other).items() if value != before[k]
        )
        self._bench.console.print(
            f"{self._name}, {nbytes} bytes: {ratio:.2f} of the time with {ways}"
        )
        return chosen

    def _repeats(self, side: Callable[[], object]) -> int:
        """Return how many calls fill a turn: of the slowest rank, after the first one."""
        side()
        mine = np.array(seconds(side, 1))
        slowest = float(self._bench.communicator.allreduce(mine, "max"))
        return max(1, min(_MOST_CALLS, int(_TURN_S / slowest)))

    def _run(self, source: Array, result: Array, way: _Way) -> None:
        self._tune(way)
        communicator = self._bench.communicator
        for call in self._calls:
            method = getattr(communicator, call)
            if call == "allreduce":
                method(source, out=result)
            elif call == "scatter" and communicator.rank != 0:
                method(None)
            else:
                method(source)
