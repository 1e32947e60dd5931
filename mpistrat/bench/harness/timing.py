"""Time several functions in turn, in rounds, at the pace of the slowest rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from mpistrat import Communicator

__all__ = ["Plan", "Timing", "measure", "seconds", "take_turns"]


@dataclass(frozen=True)
class Plan:
    """The numbers of rounds, calls a round, and warm-up calls.

    Attributes
    ----------
    rounds
        How often each function has its turn.
    repeats
        Calls in a turn; their mean is the time of that round.
    warmup
        Calls of each function before the first round.
    """

    rounds: int = 31
    repeats: int = 500
    warmup: int = 500


@dataclass(frozen=True)
class Timing:
    """The times of one function, round by round.

    Attributes
    ----------
    rounds_us
        The time of a call in each round, on the slowest rank, in microseconds.
    """

    rounds_us: tuple[float, ...]

    @property
    def median_us(self) -> float:
        """Median over the rounds."""
        return float(np.median(self.rounds_us))

    @property
    def min_us(self) -> float:
        """Least over the rounds."""
        return min(self.rounds_us)

    @property
    def p99_us(self) -> float:
        """99th percentile over the rounds."""
        return float(np.percentile(self.rounds_us, 99))

    @property
    def max_us(self) -> float:
        """Most over the rounds."""
        return max(self.rounds_us)

    def minus(self, other: Timing) -> Timing:
        """Return the differences by round: a disturbance hits both sides of a round."""
        pairs = zip(self.rounds_us, other.rounds_us, strict=True)
        return Timing(tuple(mine - theirs for mine, theirs in pairs))

    def speedup(self, other: Timing) -> float:
        """Return how many times faster than `other` this is: the median of the rounds' ratios."""
        return float(np.median(np.divide(other.rounds_us, self.rounds_us)))

    def record(self) -> dict[str, float]:
        """Return the figures for a JSON line."""
        figures = {"median_us": self.median_us, "min_us": self.min_us, "max_us": self.max_us}
        return {name: round(value, 3) for name, value in figures.items()}


def measure(
    functions: Mapping[str, Callable[[], object]], communicator: Communicator, plan: Plan
) -> dict[str, Timing]:
    """Warm up, and time each function in every round, all with the same number of calls.

    **Collective**: `functions` are the same on all ranks.
    """
    # All sides before the first turn: connections, buffers and caches are made on first use.
    for function in functions.values():
        seconds(function, plan.warmup)
    repeats = [plan.repeats] * len(functions)
    timings = take_turns(list(functions.values()), communicator, plan.rounds, repeats)
    return dict(zip(functions, timings, strict=True))


def take_turns(
    functions: Sequence[Callable[[], object]],
    communicator: Communicator,
    rounds: int,
    repeats: Sequence[int],
) -> list[Timing]:
    """Time each function in every round; every rank gets the times of the slowest one.

    Every other round goes through the functions backwards, so that none is always the one that
    follows another. **Collective**: `functions` are the same on all ranks.

    Parameters
    ----------
    functions
        What is timed.
    communicator
        Where the ranks meet before each turn.
    rounds
        How often each function has its turn.
    repeats
        Calls in a turn of each function.
    """
    mine = np.zeros((len(functions), rounds))
    turns = list(zip(mine, functions, repeats, strict=True))
    for round_ in range(rounds):
        for row, function, count in turns if round_ % 2 == 0 else reversed(turns):
            communicator.barrier()  # a turn must not begin while a peer is in the one before
            row[round_] = seconds(function, count) / count
    # Of each round by itself: the maximum of medians would hide which rank was late when.
    slowest_us = communicator.allreduce(mine, "max") * 1e6
    return [Timing(tuple(times.tolist())) for times in slowest_us]


def seconds(function: Callable[[], object], count: int) -> float:
    """Return how long `count` calls take."""
    calls = repeat(None, count)  # made before the clock starts, and cheaper than a range
    start = time.perf_counter()
    for _ in calls:
        function()
    return time.perf_counter() - start
