"""Check that no rank computes, or copies memory, much more slowly than the others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Problem, Verdict, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.job.timed_comm import TimedComm
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Work", "judge"]

_MEET = 170
_WINDOW_S, _WINDOWS = 0.025, 12
_COUNT = 8192
_COPY_BYTES = 4 << 20
_SLOW = 0.6  # of the median of the others
_OUTLIER = 5.0  # times the others' usual distance from their median
_BUSY = 0.5


@dataclass(frozen=True)
class Work:
    """What one rank did in its best window of time: a passing load is not seen.

    Attributes
    ----------
    evaluations
        Exponential functions of an array in a second of the processor's time.
    copied_gb_s
        Memory copied in a second of the processor's time.
    core_share
        The part of the time in which the rank had a core.
    """

    evaluations: float
    copied_gb_s: float
    core_share: float = 1.0


def _exchange(_: Here, comm: TimedComm) -> Work:
    if comm.size < 2:
        raise NotHere("one rank")
    import numpy as np

    # Of the calling thread alone, whatever the number of BLAS's, and from its cache.
    numbers = np.linspace(0, 1, _COUNT, dtype=np.float32)
    powers = np.empty_like(numbers)
    data, copy = np.ones(_COPY_BYTES, np.uint8), np.empty(_COPY_BYTES, np.uint8)
    comm.meet(_MEET)  # all work at the same time, as in training
    evaluations, share = _best(lambda: np.exp(numbers, out=powers))
    copies, share_of_copies = _best(lambda: np.copyto(copy, data))
    return Work(evaluations, copies * _COPY_BYTES / 1e9, max(share, share_of_copies))


def _best(call: Callable[[], object]) -> tuple[float, float]:
    """Return the most calls in a second of the processor's time, and the largest share of a core.

    The processor's time, in place of the clock's, tells slow cores from busy ones.
    """
    windows = [_window(call) for _ in range(_WINDOWS)]
    return max(rate for rate, _ in windows), max(share for _, share in windows)


def _window(call: Callable[[], object]) -> tuple[float, float]:
    count, begin, cpu = 0, time.perf_counter(), time.thread_time()
    while (passed_s := time.perf_counter() - begin) < _WINDOW_S:
        call()
        count += 1
    worked_s = max(time.thread_time() - cpu, 1e-9)
    return count / worked_s, min(1.0, worked_s / passed_s)


def judge(facts: Mapping[int, Work], job: Job) -> Verdict:
    """Find outliers: much slower than the others, and by more than these differ."""
    slow: dict[int, list[str]] = {}
    for words, values in (
        ("computes at {:.0%}", {rank: work.evaluations for rank, work in facts.items()}),
        ("copies memory at {:.0%}", {rank: work.copied_gb_s for rank, work in facts.items()}),
    ):
        for rank, part in _outliers(values, _SLOW).items():
            slow.setdefault(rank, []).append(words.format(part))
    problems = [_of_speed(rank, texts, job) for rank, texts in slow.items()]
    shares = {rank: work.core_share for rank, work in facts.items()}
    busy = [rank for rank in _outliers(shares, _BUSY) if shares[rank] < _BUSY]
    problems += [_of_share(rank, shares[rank], job) for rank in busy]
    usual = statistics.median(work.evaluations for work in facts.values())
    slowest = min(work.evaluations for work in facts.values()) / usual
    return Verdict(
        f"slowest rank computes at {slowest:.0%} of the median's speed", problems=tuple(problems)
    )


def _outliers(values: Mapping[int, float], limit: float) -> dict[int, float]:
    """Return the ranks far below the others' median, and which part of that they reach."""
    found = {}
    ordered = sorted(values.values())
    # No median of the others is more than this: with thousands of ranks few are looked at.
    most = ordered[min(len(ordered) // 2 + 1, len(ordered) - 1)]
    for rank, value in values.items():
        if value >= limit * most:
            continue
        others = [other for peer, other in values.items() if peer != rank]
        median = statistics.median(others)
        distance = statistics.median(abs(other - median) for other in others)
        if value < limit * median and median - value > _OUTLIER * distance:
            found[rank] = value / median
    return found


def _of_speed(rank: int, slow: list[str], job: Job) -> Problem:
    can_exclude = len(job.nodes) > 1 and job.launcher.kind == "srun"
    return warning(
        f"{job.who([rank])} {' and '.join(slow)} of the others' speed",
        "about the same speed on all ranks: the slowest one sets the pace",
        f"look at the clocks and temperature of {job.hosts[rank]}, or leave it out",
        f"#SBATCH --exclude={job.slurm_node(rank)}" if can_exclude else "",
    )


def _of_share(rank: int, share: float, job: Job) -> Problem:
    return warning(
        f"{job.who([rank])} has a core for {share:.0%} of the time",
        "a core of its own: the slowest rank sets the pace",
        "other processes run on its cores: end them, or bind the rank to other cores",
        "top -o %CPU",
    )


CHECK = Check(
    name="ranks.slow_rank",
    title="slow ranks",
    source="NVIDIA/nvidia-resiliency-ext (stragglers); Azure cpu_stream",
    exchange=_exchange,
    judge=judge,
)
