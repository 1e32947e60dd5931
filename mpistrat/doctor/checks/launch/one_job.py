"""Check that the ranks are one job: MPI sees as many as the launcher announced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.cluster.launcher.launch_variables import expected_rank
from mpistrat.cluster.slurm.mpi_types import fitting_type, library_kind
from mpistrat.doctor.check import Check, Problem, Verdict, failure, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job import slurm
from mpistrat.doctor.job.command_line import mpirun_line, right_line
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.job.mpirun import mpirun_of_environment
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "Start", "judge"]


@dataclass(frozen=True)
class Start:
    """How one rank was started.

    Attributes
    ----------
    size
        Ranks that MPI sees; 0 where it did not start.
    problem
        Why it did not.
    duration_s
        Time of MPI_Init.
    types
        What ``srun --mpi=list`` offers; asked only where something has to be mended.
    mpirun
        The mpirun that belongs to the MPI library, as far as it can be told.
    """

    size: int
    problem: str = ""
    duration_s: float = 0.0
    types: tuple[str, ...] = ()
    mpirun: str = "mpirun"


def _measure(here: Here) -> Start:
    mpi, launcher = here.mpi, here.launcher
    is_one_job = launcher.kind != "alone" and mpi.size >= launcher.size and not mpi.problem
    types: tuple[str, ...] = ()
    if not is_one_job and (expected_rank() or ("", 0))[1] == 0:
        try:
            types = slurm.mpi_types()
        except NotHere:
            pass  # no Slurm: nothing to choose from
    return Start(mpi.size, mpi.problem, mpi.duration_s, types, mpirun_of_environment())


def judge(facts: Mapping[int, Start], job: Job) -> Verdict:
    """Compare the size of the job with what the launcher announced."""
    first, launcher = facts[min(facts)], job.launcher
    if job.silent:
        return Verdict(f"{job.size} ranks, some of them silent", problems=(_silent(job),))
    if launcher.kind == "alone":
        return _alone(first, job)
    if first.size >= launcher.size and not first.problem:
        slowest_s = max(start.duration_s for start in facts.values())
        ranks = f"{job.size} rank{'s' * (job.size > 1)}"
        announced = f", as {launcher.variable} announced" if launcher.variable else ""
        start = f"MPI started in {slowest_s:.1f} s" if slowest_s else "started without MPI"
        return Verdict(f"{ranks}{announced}; {start}")
    if first.problem and "gave no variables" not in first.problem:
        return Verdict("MPI did not start", problems=(_not_started(first, job),))
    value = f"{launcher.size} separate jobs of one rank each"
    return Verdict(value, problems=(_apart(first, job),))


def _alone(start: Start, job: Job) -> Verdict:
    tasks = job.launcher.allocated
    if tasks <= 1:
        return Verdict(f"one process; for two type {mpirun_line(job, start.mpirun, 2)}")
    found = warning(
        "one process, started without srun or mpirun",
        f"{tasks} ranks, as this Slurm allocation has tasks",
        "start it with a launcher: this report tells of one process only",
        right_line(job, start.types, start.mpirun),
    )
    return Verdict(f"one process in an allocation of {tasks} tasks", problems=(found,))


def _silent(job: Job) -> Problem:
    names = ", ".join(
        f"rank {rank}{f' on {host}' if host else ''}" for rank, host in sorted(job.silent.items())
    )
    nodes = ",".join(sorted({host.partition("@")[0] for host in job.silent.values() if host}))
    can_exclude = job.launcher.kind == "srun" and nodes and len(job.nodes) > 1
    return failure(
        f"{names} did not answer in time",
        f"answers of all {job.size} ranks",
        "look for a file system that hangs, or a stopped process, on that node; or leave it out",
        f"#SBATCH --exclude={nodes}" if can_exclude else "",
    )


def _not_started(start: Start, job: Job) -> Problem:
    return failure(
        f"MPI did not start: {start.problem}",
        f"a job of {job.launcher.size} ranks",
        "look at the ranks that are named; if there are none, at the network that MPI uses",
        right_line(job, start.types, start.mpirun) if job.launcher.kind == "srun" else "",
    )


def _apart(start: Start, job: Job) -> Problem:
    launcher, kind = job.launcher, library_kind(job.library) or "the MPI library"
    by: str = launcher.kind
    if by == "srun":
        by += f" --mpi={launcher.mpi_type}" if launcher.mpi_type else " without --mpi"
    reason = f": {start.problem}" if start.problem else ""
    return failure(
        f"{by} started {launcher.size} separate jobs of one rank each{reason}",
        f"one job of {launcher.size} ranks, as {launcher.variable} announced",
        f"{_cause(start, job, kind)}; else each rank trains alone, and writes the same files",
        right_line(job, start.types, start.mpirun),
    )


def _cause(start: Start, job: Job, kind: str) -> str:
    if job.launcher.kind != "srun":
        return f"this {job.launcher.kind} is not that of {kind}: start with the right one"
    if fitting := fitting_type(job.library, start.types):
        return f"start with --mpi={fitting}, for {kind}, or by mpirun in the allocation"
    listed = ", ".join(start.types) or "nothing"
    return f"this Slurm offers {listed}, which {kind} cannot use: start with mpirun"


CHECK = Check(
    name="launch.one_job",
    title="one job",
    source="open-mpi/ompi#13523, #4338",
    measure=_measure,
    judge=judge,
)
