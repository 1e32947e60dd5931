"""Check the limits of the processes: locked memory, open files, core dumps, memory of the job."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.command_line import srun_line
from mpistrat.doctor.job.job import Job, by_value

__all__ = ["CHECK", "Limits", "judge"]

_UNLIMITED = -1
_LOCKED = 1 << 30
_FILES = 1024
_MEMBERSHIP, _MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Limits:
    """The limits of one rank; -1 where there is none.

    Attributes
    ----------
    locked
        Bytes of memory that it may lock.
    files, files_at_most
        Files that it may have open, and up to how many it may raise that.
    core
        Bytes of a core dump.
    needs_locked
        Whether the node has InfiniBand or the like, which locks memory.
    memory
        Bytes of its control group, None where it has no limit of its own.
    asked
        Bytes of memory of the node that the job has asked Slurm for, None where not said.
    """

    locked: int
    files: int
    files_at_most: int
    core: int
    needs_locked: bool = False
    memory: int | None = None
    asked: int | None = None


def _measure(here: Here) -> Limits:
    files, files_at_most = resource.getrlimit(resource.RLIMIT_NOFILE)
    megabytes = here.number("SLURM_MEM_PER_NODE")
    return Limits(
        locked=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        files=files,
        files_at_most=files_at_most,
        core=resource.getrlimit(resource.RLIMIT_CORE)[0],
        needs_locked=any(Path("/sys/class/infiniband").glob("*")),
        memory=_memory(),
        asked=megabytes << 20 if megabytes else None,
    )


def _memory() -> int | None:
    """Return the memory limit of this process's control groups, version 1 or 2."""
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:
        return None
    found = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        group = _MOUNT / controllers / name.lstrip("/")
        for file in ("memory.max", "memory.limit_in_bytes"):
            text = _text(group / file)
            if re.fullmatch(r"\d{1,15}", text):  # version 1 has a longer number for no limit
                found.append(int(text))
    return min(found, default=None)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def judge(facts: Mapping[int, Limits], job: Job) -> Verdict:
    """Find limits with which programs crash, and core dumps that would fill the disk."""
    problems: list[Problem] = []
    for limits, ranks in by_value(facts).items():
        problems += _problems(limits, job.who(ranks), job)
    first = facts[min(facts)]
    locked = "unlimited" if first.locked == _UNLIMITED else f"{first.locked >> 20} MiB"
    core = "core dumps" if first.core else "no core dumps"
    return Verdict(
        f"locked memory {locked}, {first.files} files, {core}", problems=tuple(problems)
    )


def _problems(limits: Limits, who: str, job: Job) -> Iterator[Problem]:
    if limits.needs_locked and limits.locked != _UNLIMITED and limits.locked < _LOCKED:
        yield failure(
            f"{who} may lock {limits.locked >> 10} KiB of memory (ulimit -l)",
            "unlimited: InfiniBand and Slingshot lock the memory that they send from",
            "Open MPI crashes or falls back to TCP with less; Slurm takes the limit of slurmd,"
            " which the site sets by LimitMEMLOCK=infinity",
            "ulimit -l unlimited",
        )
    need = max(_FILES, 2 * job.size)
    if limits.files != _UNLIMITED and limits.files < need:
        can = limits.files_at_most == _UNLIMITED or limits.files_at_most >= need
        yield warning(
            f"{who} may have {limits.files} files open (ulimit -n)",
            f"{need} at least, for connections to other ranks and files of data",
            "raise it before the ranks start" if can else "ask the site for a higher limit",
            f"ulimit -n {need}" if can else "",
        )
    is_srun = job.launcher.kind == "srun"
    if limits.core:
        size = "any size" if limits.core == _UNLIMITED else f"{limits.core >> 20} MiB"
        with_limits = srun_line(job, "--propagate=CORE,NOFILE,STACK")
        yield warning(
            f"{who} may write core dumps of {size} (ulimit -c)",
            "none: each rank of a job that fails would write all of its memory",
            "turn them off in the job's script"
            + (", and have srun pass that on: this Slurm need not" if is_srun else ""),
            f"ulimit -c 0; {with_limits}" if is_srun else "ulimit -c 0",
        )
    if limits.memory and limits.asked and limits.memory < limits.asked:
        yield warning(
            f"the control group of {who} has {limits.memory >> 20} MiB",
            f"{limits.asked >> 20} MiB, as the job asked for by --mem",
            "state --mem on srun's command line too, or start one step at a time",
        )


CHECK = Check(
    name="job.resource_limits",
    title="limits",
    source="Slurm's MPI guide (LimitMEMLOCK)",
    measure=_measure,
    judge=judge,
)
