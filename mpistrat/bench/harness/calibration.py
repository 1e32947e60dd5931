"""Choose how many calls and rounds fill the time limit of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.harness.timing import Timing, seconds, take_turns

__all__ = ["Budget", "calibrate", "measure_within"]

_MIN_ROUNDS = 5
_MAX_REPEATS = 10_000
_TRIAL_SHARE = 0.25
_GROWTH = 4


@dataclass(frozen=True)
class Budget:
    """The time limit of a row of the table.

    Attributes
    ----------
    rounds
        Turns of each side; fewer, though not under 5, if one call a turn is over the time.
    seconds
        Time for all turns of all sides, without warm-up.
    """

    rounds: int
    seconds: float


def measure_within(
    functions: Sequence[Callable[[], object]], communicator: Communicator, budget: Budget
) -> list[Timing]:
    """Warm up, and time functions in turn for about `budget`. **Collective.**"""
    turn_s = budget.seconds / budget.rounds / len(functions)
    calls_s = [_call_s(function, communicator, turn_s) for function in functions]
    rounds, repeats = calibrate(calls_s, budget)
    return take_turns(functions, communicator, rounds, repeats)


def calibrate(calls_s: Sequence[float], budget: Budget) -> tuple[int, list[int]]:
    """Return the rounds, and each side's calls in a turn, from the seconds of a call. **Local.**

    Every side gets the same time, whatever its speed.
    """
    turn_s = budget.seconds / budget.rounds / len(calls_s)
    # More calls of a fast side: a turn has to be long against the clock's steps and the barrier.
    repeats = [min(max(1, int(turn_s / call_s)), _MAX_REPEATS) for call_s in calls_s]
    round_s = float(np.dot(calls_s, repeats))
    # Fewer rounds where single calls are long, but enough for a median.
    fitting = max(min(_MIN_ROUNDS, budget.rounds), int(budget.seconds / round_s))
    return min(budget.rounds, fitting), repeats


def _call_s(function: Callable[[], object], communicator: Communicator, turn_s: float) -> float:
    """Return the seconds of a call on the slowest rank, once it is warm: equal on all ranks."""
    function()
    count = 1
    while True:
        # A rank that comes late would be waited for in the timed calls.
        communicator.barrier()
        mine = np.array(seconds(function, count))
        # By the slowest rank's time all ranks leave the loop together, with one count.
        slowest = float(communicator.allreduce(mine, "max"))
        if slowest >= turn_s * _TRIAL_SHARE or count >= _MAX_REPEATS:
            # Not 0, by which `calibrate` divides.
            return max(slowest / count, 1e-9)
        count *= _GROWTH
