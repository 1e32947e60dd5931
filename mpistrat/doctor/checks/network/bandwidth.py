"""Measure latency and bandwidth between ranks by MPI, and compare them with the site's nominal."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Problem, Verdict, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.job.timed_comm import TimedComm
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Speed", "judge"]

_MEET, _PARTNER, _PING = 150, 151, 152
_PINGS, _SUMS = 200, 2
_NBYTES = 64 << 20
_MOST_A_NODE = 8  # with more ranks a node the arrays are shorter: they might not fit into memory
_FLOOR = 0.5  # of the nominal bandwidth; and its inverse of the latency


@dataclass(frozen=True)
class Speed:
    """What one rank has measured.

    Attributes
    ----------
    partner
        The rank that it exchanged 8 bytes with, on another node if there are several.
    latency_us
        Half the time of a message there and back, the median.
    bandwidth_gb_s
        Bus bandwidth of an all-reduce, the best of two.
    nbytes
        Length of its arrays: 64 MiB, less with many ranks a node.
    """

    partner: int
    latency_us: float
    bandwidth_gb_s: float
    nbytes: int = _NBYTES


def _exchange(here: Here, comm: TimedComm) -> Speed:
    if comm.size < 2:
        raise NotHere("one rank")
    comm.meet(_MEET)
    partner = _partner(here, comm)
    latency_us = _latency_us(comm, partner)
    comm.meet(_MEET + 10)
    most = max(here.hosts.count(host) for host in set(here.hosts))
    nbytes = _NBYTES * _MOST_A_NODE // max(most, _MOST_A_NODE)
    return Speed(partner, latency_us, _bandwidth(comm, nbytes), nbytes)


def _partner(here: Here, comm: TimedComm) -> int:
    """Return a rank of another node for rank 0, and rank 0 for that one; -1 for the others."""
    hosts = here.hosts
    other = next((r for r, host in enumerate(hosts) if host != hosts[0]), 1)
    return {0: other, other: 0}.get(comm.rank, -1)


def _latency_us(comm: TimedComm, partner: int) -> float:
    if partner < 0:
        return 0.0
    buffer, times = bytearray(8), []
    for _ in range(_PINGS):
        begin = time.perf_counter()
        for is_sender in (comm.rank < partner, comm.rank > partner):
            post = comm.comm.Isend if is_sender else comm.comm.Irecv
            comm.wait([post(buffer, partner, _PING)], [partner], "a message of 8 bytes")
        times.append(time.perf_counter() - begin)
    return statistics.median(times) / 2 * 1e6


def _bandwidth(comm: TimedComm, nbytes: int) -> float:
    import numpy as np

    data, total = np.ones(nbytes // 4, np.float32), np.empty(nbytes // 4, np.float32)
    best_s = float("inf")
    for _ in range(_SUMS):
        begin = time.perf_counter()
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        comm.wait([comm.comm.Iallreduce(data, total)], others, "an all-reduce")
        best_s = min(best_s, time.perf_counter() - begin)
    if total[0] != comm.size or total[-1] != comm.size:
        raise ValueError(f"an all-reduce of ones gave {total[0]}, expected {comm.size}")
    return 2 * (comm.size - 1) / comm.size * nbytes / best_s / 1e9


def judge(facts: Mapping[int, Speed], job: Job) -> Verdict:
    """Compare what was measured with what the site's file says of two nodes."""
    measured = [speed for speed in facts.values() if speed.latency_us]
    latency_us = max((speed.latency_us for speed in measured), default=0.0)
    bandwidth = min(speed.bandwidth_gb_s for speed in facts.values())
    nodes = len(job.nodes)
    where = f"between {nodes} nodes" if nodes > 1 else "within a node"
    mib = min(speed.nbytes for speed in facts.values()) >> 20
    value = (
        f"MPI's own: 8 B {latency_us:.1f} us, {mib} MiB all-reduce {bandwidth:.2f} GB/s {where}"
    )
    if job.site is None or nodes < 2 or job.site.node.gpus:
        return Verdict(value)  # nominal values of sites with GPUs are NCCL's: see nccl_transport
    nominal = job.site.nominal
    expected, problems = [], []
    if nominal.latency_us:
        expected.append(f"{nominal.latency_us.value:g} us")
        if latency_us > nominal.latency_us.value / _FLOOR:
            problems.append(_slow(f"{latency_us:.1f} us for 8 B", expected[-1], job))
    if nominal.bandwidth_gb_s:
        expected.append(f"{nominal.bandwidth_gb_s.value:g} GB/s")
        if bandwidth < _FLOOR * nominal.bandwidth_gb_s.value:
            problems.append(_slow(f"{bandwidth:.2f} GB/s for 64 MiB", expected[-1], job))
    return Verdict(value, ", ".join(expected), tuple(problems))


def _slow(got: str, nominal: str, job: Job) -> Problem:
    return warning(
        f"{got} {_nodes(list(job.nodes))}",
        f"about {nominal}, as the file of site {job.site.name if job.site else ''} says",
        "try other nodes to find the slow one; NCCL may be faster than MPI, which this measures",
        f"#SBATCH --exclude={job.slurm_node(job.size - 1)}" if job.launcher.kind == "srun" else "",
    )


def _nodes(names: Sequence[str]) -> str:
    return f"between {', '.join(names[:4])}" + (f" and {len(names) - 4} more" * (len(names) > 4))


CHECK = Check(
    name="network.bandwidth",
    title="latency, bandwidth",
    source="CSCS, nccl.md (measured values); ETH vetnode",
    exchange=_exchange,
    judge=judge,
)
