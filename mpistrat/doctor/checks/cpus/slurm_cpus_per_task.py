"""Check that Slurm's variables for the CPUs of a task agree, and are read by this version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job.command_line import srun_line
from mpistrat.doctor.job.job import Job, by_value
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Variables", "judge"]

_FATAL = (23, 11)  # from this version on srun refuses variables that disagree


@dataclass(frozen=True)
class Variables:
    """The variables of one rank, "" where one is not set."""

    cpus: str
    tres: str
    srun: str
    gpus: str = ""


def _measure(here: Here) -> Variables:
    if "SLURM_JOB_ID" not in here.environment:
        raise NotHere("not in a Slurm job")
    names = ("SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SRUN_CPUS_PER_TASK")
    cpus, tres, srun = (here.environment.get(name, "") for name in names)
    return Variables(cpus, tres, srun, here.environment.get("SLURM_GPUS_PER_TASK", ""))


def judge(facts: Mapping[int, Variables], job: Job) -> Verdict:
    """Compare the variables with each other."""
    problems: list[Problem] = []
    for variables, ranks in by_value(facts).items():
        who = job.who(ranks)
        found = _disagreement(variables, who, job) or _unread(variables, job)
        problems += [found] if found else []
    first = facts[min(facts)]
    if not first.cpus:
        return Verdict("SLURM_CPUS_PER_TASK is not set", problems=tuple(problems))
    return Verdict(f"SLURM_CPUS_PER_TASK={first.cpus}", problems=tuple(problems))


def _disagreement(variables: Variables, who: str, job: Job) -> Problem | None:
    of_tres = re.search(r"cpu[:=](\d+)", variables.tres)
    if not variables.cpus or not of_tres or of_tres[1] == variables.cpus:
        return None
    is_fatal = _release(job.slurm) >= _FATAL
    return (failure if is_fatal else warning)(
        f"SLURM_CPUS_PER_TASK={variables.cpus}, SLURM_TRES_PER_TASK={variables.tres} on {who}",
        "the same number of CPUs in both",
        "srun refuses to start then"
        if is_fatal
        else "srun of Slurm 23.11 will refuse to start"
        ": export neither, and state --cpus-per-task on srun's command line",
        srun_line(job, f"--cpus-per-task={variables.cpus}"),
    )


def _unread(variables: Variables, job: Job) -> Problem | None:
    if not variables.srun or variables.srun == variables.cpus or _release(job.slurm) < _FATAL:
        return None
    return warning(
        f"SRUN_CPUS_PER_TASK={variables.srun} is set",
        "--cpus-per-task on srun's command line",
        f"Slurm {job.slurm} does not read that variable, which 22.05 and 23.02 only did",
        srun_line(job, f"--cpus-per-task={variables.srun}"),
    )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


CHECK = Check(
    name="cpus.slurm_cpus_per_task",
    title="CPUs per task",
    source="SchedMD/slurm src/common/slurm_opt.c (23.11); scalableminds/webknossos-libs#1483",
    measure=_measure,
    judge=judge,
)
