"""Compare two tunings by time, for the case ``tune``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise
from typing import Any, Generic, TypeVar

import ml_dtypes
import numpy as np
from rich.console import Console

from mpistrat import Communicator
from mpistrat.bench.harness.timing import Plan, measure, seconds
from mpistrat.collectives.backends.gpu.tuning import GpuTuning
from mpistrat.collectives.backends.shared_memory.tuning import HALVES, Tuning, WireTuning
from mpistrat.types import Array

__all__ = ["NEVER", "Bench", "Trial"]

NEVER = 1 << 50
_GAIN = 0.97  # a candidate's time over the present one's; above this it is noise
_TURN_S, _MOST_CALLS = 0.02, 2000  # of a candidate in each of its turns

_AnyTuning = TypeVar("_AnyTuning", Tuning, WireTuning, GpuTuning)


class Bench:
    """The communicator, console and number of rounds that all trials share."""

    def __init__(self, communicator: Communicator, console: Console, rounds: int) -> None:
        self.communicator, self.console, self.rounds = communicator, console, rounds


class Trial(Generic[_AnyTuning]):
    """Compare pairs of tunings by the time of some kinds of call. **Collective.**

    Parameters
    ----------
    bench
        The communicator, console and number of rounds.
    tune
        Applies a tuning to later calls.
    calls
        Their names.
    halves
        Whether the arrays are of bfloat16; else of float32.
    place
        Returns an array of the host where the calls are to have it.
    """

    def __init__(
        self,
        bench: Bench,
        tune: Callable[[_AnyTuning], None],
        *calls: str,
        halves: bool = False,
        place: Callable[[Array], Any] = np.asarray,
    ) -> None:
        self._bench, self._calls, self._place = bench, calls, place
        self._tune: Callable[[_AnyTuning], None] = tune
        self._name = " + ".join(calls) + HALVES * halves
        self._dtype = np.dtype(ml_dtypes.bfloat16 if halves else np.float32)

    def last(self, base: _AnyTuning, name: str, sizes: Sequence[int], ranks: int = 1) -> int:
        """Return the largest of `sizes` (`ranks` together) up to which `name`'s algorithm wins."""
        limit = 1
        for nbytes in sizes:
            without, with_it = (replace(base, **{name: value}) for value in (1, NEVER))
            if self.better(nbytes // ranks, without, with_it) is without:
                break
            limit = nbytes
        return limit

    def first(self, base: _AnyTuning, name: str, sizes: Sequence[int]) -> int:
        """Return the smallest of `sizes` from which on `name`'s algorithm wins."""
        for nbytes in sizes:
            without, with_it = (replace(base, **{name: value}) for value in (NEVER, 1))
            if self.better(nbytes, without, with_it) is with_it:
                return nbytes
        return NEVER

    def stepwise(
        self, base: _AnyTuning, name: str, sizes: Sequence[int], length: Callable[[int, int], int]
    ) -> _AnyTuning:
        """Move the figure `name` up or down through `sizes`, from `base`'s, while it gets faster.

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
        for direction in (sizes[at:], sizes[at::-1]):
            best = base
            for old, new in pairwise(direction):
                other = replace(best, **{name: new})
                if self.better(length(old, new), best, other) is best:
                    break
                best = other
            if best is not base:
                break
        return best

    def better(self, nbytes: int, one: _AnyTuning, other: _AnyTuning) -> _AnyTuning:
        """Return `other` if it is clearly faster for arrays of `nbytes`, else `one`."""
        source = self._place(np.ones(max(1, nbytes // self._dtype.itemsize), self._dtype))
        result = self._place(np.empty(source.shape, self._dtype))
        sides = {
            name: partial(self._run, source, result, tuning)
            for name, tuning in (("one", one), ("other", other))
        }
        # Both take turns in one plan, so that a disturbance hits both.
        plan = Plan(self._bench.rounds, self._repeats(sides["one"]), 1)
        times = measure(sides, self._bench.communicator, plan)
        ratio = times["other"].median_us / times["one"].median_us
        # The times are those of the slowest rank, equal on all: all ranks choose alike.
        chosen = other if ratio < _GAIN else one
        before = asdict(one)
        changes = ", ".join(
            f"{k}={value}" for k, value in asdict(other).items() if value != before[k]
        )
        self._bench.console.print(
            f"{self._name}, {nbytes} bytes: {ratio:.2f} of the time with {changes}"
        )
        return chosen

    def _repeats(self, side: Callable[[], object]) -> int:
        """Return how many calls fill a turn on the slowest rank, after a warm-up call."""
        side()
        mine = np.array(seconds(side, 1))
        # Equal on all ranks, so that all make as many calls.
        slowest = float(self._bench.communicator.allreduce(mine, "max"))
        return max(1, min(_MOST_CALLS, int(_TURN_S / slowest)))

    def _run(self, source: Any, result: Any, tuning: _AnyTuning) -> None:
        self._tune(tuning)
        communicator = self._bench.communicator
        for call in self._calls:
            method = getattr(communicator, call)
            if call == "allreduce":
                method(source, out=result)
            # A scatter takes an array of its root only.
            elif call == "scatter" and communicator.rank != 0:
                method(None)
            else:
                method(source)
