"""Check that /dev/shm has room for what MPI and NCCL share between the ranks of a node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Verdict, failure
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Space", "judge"]

_FOLDER = "/dev/shm"
# Of a rank: MPI's messages within a node, mpistrat's where memfd is forbidden, NCCL's buffers.
_NEED_A_RANK = 32 << 20
_NEED = 64 << 20


@dataclass(frozen=True)
class Space:
    """The size of /dev/shm and what is free of it, in bytes."""

    size: int
    free: int


def _measure(_: Here) -> Space:
    try:
        found = os.statvfs(_FOLDER)
    except OSError as error:
        raise NotHere(f"no {_FOLDER}: {error.strerror}") from error
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def judge(facts: Mapping[int, Space], job: Job) -> Verdict:
    """Compare what is free with what the ranks of each node need."""
    problems = []
    for host, ranks in job.nodes.items():
        here = [facts[rank] for rank in ranks if rank in facts]
        need = max(_NEED, _NEED_A_RANK * len(ranks))
        free = min((space.free for space in here), default=need)
        if free < need:
            size = here[0].size >> 20
            problems.append(
                failure(
                    f"{_FOLDER} of {host} has {free >> 20} MiB free, of {size} MiB",
                    f"{need >> 20} MiB for {len(ranks)} rank{'s' * (len(ranks) > 1)}",
                    "a rank that finds no room there crashes with SIGBUS: remove what earlier jobs"
                    " left in it, or give a container more (docker run --shm-size, Apptainer"
                    " --bind /dev/shm)",
                    f"ls -l {_FOLDER}" if size << 20 >= need else "",
                )
            )
    first = facts[min(facts)]
    return Verdict(
        f"{first.free / 2**30:.1f} GiB free of {first.size / 2**30:.1f}", problems=tuple(problems)
    )


CHECK = Check(
    name="files.shared_memory",
    title="/dev/shm",
    source="NVIDIA/nccl, troubleshooting (shared memory); docker run --shm-size",
    measure=_measure,
    judge=judge,
)
