"""Check that the job was started by the site's launcher, and with its type of MPI."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.cluster.slurm.mpi_types import fitting_type
from mpistrat.doctor.check import Check, Problem, Verdict, Where, failure, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job import slurm
from mpistrat.doctor.job.command_line import right_line
from mpistrat.doctor.job.job import Job, site_of
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Launchers", "judge"]

# ibrun starts the ranks by the MPI library's own mpirun.
_KINDS = {"srun": ("srun",), "ibrun": ("mpirun", "srun"), "mpiexec": ("mpiexec", "mpirun")}


@dataclass(frozen=True)
class Launchers:
    """The launchers that PATH has, and what ``srun --mpi=list`` offers."""

    on_path: tuple[str, ...]
    types: tuple[str, ...] = ()


def _measure(here: Here) -> Launchers:
    if here.site is None:
        raise NotHere("no site is named (--site NAME)")
    on_path = [name for name in ("srun", "ibrun", "mpiexec", "mpirun") if shutil.which(name)]
    try:
        return Launchers(tuple(on_path), slurm.mpi_types())
    except NotHere:
        return Launchers(tuple(on_path))


def judge(facts: Mapping[int, Launchers], job: Job) -> Verdict:
    """Compare the launcher and its --mpi with the site's file."""
    site, found = site_of(job), facts[min(facts)]
    command, mpi = site.launcher.command.value, site.launcher.mpi
    problems: list[Problem] = []
    corrections: dict[str, object] = {}
    if command not in found.on_path:
        problems.append(
            failure(
                f"{command} is not on PATH; {', '.join(found.on_path) or 'no launcher'} is",
                f"{command}, the launcher of {site.title}",
                "load the site's modules, or correct the site: mpistrat doctor --write-site",
            )
        )
    elif job.launcher.kind not in ("alone", *_KINDS.get(command, (command,))):
        problems.append(
            warning(
                f"the ranks were started by {job.launcher.kind}",
                f"{command}, which binds them as the site's file says",
                "start them by the site's launcher",
                right_line(job, found.types, "mpirun"),
            )
        )
    if mpi is not None and found.types and mpi.value not in found.types:
        fitting = fitting_type(job.library, found.types)
        corrections = {"launcher.mpi": fitting} if fitting else {}
        problems.append(
            failure(
                f"srun --mpi=list offers {', '.join(found.types)}",
                f"{mpi.value}, which the site's file names",
                "correct the site's file: mpistrat doctor --write-site",
            )
        )
    elif mpi is None and command == "srun" and (right := _needed(job, found.types)):
        corrections = {"launcher.mpi": right}
    value = f"{command}{f' --mpi={mpi.value}' if mpi else ''}"
    return Verdict(value, problems=tuple(problems), corrections=corrections)


def _needed(job: Job, types: tuple[str, ...]) -> str:
    """Return the --mpi that a job that works was started with, if the default is another one."""
    works = job.launcher.kind == "srun" and job.size == job.launcher.size > 1
    used = job.launcher.mpi_type
    return used if works and used in types and used != "none" else ""


CHECK = Check(
    name="site.launcher",
    title="launcher",
    source="the site's file, [launcher]",
    measure=_measure,
    judge=judge,
    where=Where.FIRST_RANK,
)
