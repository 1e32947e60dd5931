"""Check that the clocks of the nodes agree, by messages there and back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Verdict, failure, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.job.timed_comm import TimedComm
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Clock", "judge"]

_ASK, _TELL = 180, 181
_ROUNDS = 5
_NOTICED_S, _WRONG_S = 1.0, 60.0  # munge refuses messages that are minutes old


@dataclass(frozen=True)
class Clock:
    """How far a node's clock is ahead of rank 0's, in seconds, and how certain that is."""

    ahead_s: float
    error_s: float = 0.0


def _exchange(here: Here, comm: TimedComm) -> Clock:
    first_ranks = sorted({here.hosts.index(host) for host in here.hosts})
    if len(first_ranks) < 2:
        raise NotHere("one node")
    if comm.rank == 0:
        for rank in first_ranks[1:]:
            for _ in range(_ROUNDS):
                comm.receive(rank, _ASK)
                comm.send(time.time(), rank, _TELL)
        return Clock(0.0)
    if comm.rank not in first_ranks:
        raise NotHere("measured by the first rank of the node")
    return _offset(comm)


def _offset(comm: TimedComm) -> Clock:
    """Return the offset of the fastest round: the answer was sent about half way."""
    rounds = []
    for _ in range(_ROUNDS):
        before, begin = time.time(), time.monotonic()
        comm.send(None, 0, _ASK)
        told = comm.receive(0, _TELL, comm.timeout_s * comm.size)
        took_s = time.monotonic() - begin
        rounds.append((took_s, before + took_s / 2 - told))
    took_s, ahead_s = min(rounds)
    return Clock(ahead_s, took_s / 2)


def judge(facts: Mapping[int, Clock], job: Job) -> Verdict:
    """Find nodes whose clock is not rank 0's."""
    problems = []
    for rank, clock in facts.items():
        off_s = abs(clock.ahead_s) - clock.error_s
        if off_s > _NOTICED_S:
            report = failure if off_s > _WRONG_S else warning
            direction = "ahead of" if clock.ahead_s > 0 else "behind"
            problems.append(
                report(
                    f"the clock of {job.hosts[rank]} is {abs(clock.ahead_s):.1f} s"
                    f" {direction} that of {job.hosts[0]}",
                    "the same time on all nodes, by NTP or chrony",
                    "times of files and logs are wrong, and Slurm's messages are refused: report"
                    " the node to the site",
                )
            )
    largest_s = max(abs(clock.ahead_s) for clock in facts.values())
    return Verdict(
        f"the nodes' clocks differ by {largest_s * 1e3:.0f} ms", problems=tuple(problems)
    )


CHECK = Check(
    name="ranks.clocks",
    title="clocks",
    source="munge (credentials expire); NVIDIA/nccl#286",
    exchange=_exchange,
    judge=judge,
)
