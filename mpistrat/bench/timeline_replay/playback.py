"""Make recorded calls again in their order, with or without the time between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.harness.timing import Timing
from mpistrat.bench.timeline_replay.buffers import Replayed
from mpistrat.bench.timeline_replay.recorded_call import Kind, Recording
from mpistrat.types import Array

__all__ = ["Playback", "play", "why_wrong"]

_MIN_ROUNDS = 3


@dataclass(frozen=True)
class Playback:
    """The times of a replay.

    Attributes
    ----------
    with_gaps
        Whether the time between calls is in it.
    timing
        Of all calls in a round, on the slowest rank.
    calls_us
        (calls,): the median over rounds of each call's time on its slowest rank.
    """

    with_gaps: bool
    timing: Timing
    calls_us: Array

    def by_op(self, recording: Recording) -> dict[str, dict[str, Any]]:
        """Return the numbers of each op, for a JSON line."""
        found = {}
        for op in dict.fromkeys(call.kind.op for call in recording.calls):
            pairs = zip(recording.calls, self.calls_us.tolist(), strict=True)
            times = [(call, time_us) for call, time_us in pairs if call.kind.op == op]
            recorded = [call.duration_us for call, _ in times]
            replayed = [time_us for _, time_us in times]
            found[op] = {
                "calls": len(times),
                "bytes": sum(call.kind.nbytes for call, _ in times),
                "median_us": round(float(np.median(replayed)), 3),
                "total_us": round(sum(replayed), 3),
                "recorded_median_us": round(float(np.median(recorded)), 3),
                "recorded_total_us": round(sum(recorded), 3),
            }
        return found


def why_wrong(calls: dict[Kind, Replayed], communicator: Communicator) -> str | None:
    """Make each kind of call once; return which answers are wrong. **Collective.**"""
    mine = [kind for kind, one in calls.items() if not one.is_right()]
    wrong = [
        f"{kind.op} of {kind.nbytes} bytes of {kind.dtype} is wrong on rank {rank}"
        for rank, kinds in enumerate(communicator.allgather_object(mine))
        for kind in kinds
    ]
    return wrong[0] if wrong else None


def play(
    recording: Recording,
    calls: dict[Kind, Replayed],
    communicator: Communicator,
    with_gaps: bool,
    rounds: int,
    seconds: float,
) -> Playback:
    """Warm up, and make all calls in each round. **Collective.**

    There are as many rounds as fit into the time, but 3 at least unless fewer are asked for.
    """
    functions = [calls[call.kind].call for call in recording.calls]
    gaps_s = [call.gap_us / 1e6 for call in recording.calls] if with_gaps else None
    total_s, _ = _round(functions, gaps_s, communicator)
    slowest_s = float(communicator.allreduce(np.array(total_s), "max"))
    count = min(rounds, max(_MIN_ROUNDS, int(seconds / max(slowest_s, 1e-9))))
    taken = [_round(functions, gaps_s, communicator) for _ in range(count)]
    totals = communicator.allreduce(np.array([total for total, _ in taken]), "max") * 1e6
    calls_us = communicator.allreduce(np.stack([times for _, times in taken]), "max") * 1e6
    return Playback(with_gaps, Timing(tuple(totals.tolist())), np.median(calls_us, axis=0))


def _round(
    functions: Sequence[Callable[[], object]],
    gaps_s: Sequence[float] | None,
    communicator: Communicator,
) -> tuple[float, Array]:
    """Return the time of all calls with the gaps, and that of each call, in seconds."""
    times = np.zeros(len(functions))
    clock = time.perf_counter
    communicator.barrier()
    first = clock()
    for index, function in enumerate(functions):
        if gaps_s is not None:
            _compute(gaps_s[index])
        start = clock()
        function()
        times[index] = clock() - start
    return clock() - first, times


def _compute(duration_s: float) -> None:
    """Keep the processor busy, as the recorded program's computation did."""
    end = time.perf_counter() + duration_s
    while time.perf_counter() < end:
        pass
