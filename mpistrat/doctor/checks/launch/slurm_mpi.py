"""Check that this Slurm's srun can start ranks of the MPI library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.cluster.slurm.mpi_types import fitting_type, library_kind
from mpistrat.doctor.check import Check, Problem, Verdict, Where, failure, warning
from mpistrat.doctor.here import Here
from mpistrat.doctor.job import slurm
from mpistrat.doctor.job.command_line import mpirun_line
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.job.mpirun import mpirun_of_environment
from mpistrat.doctor.not_here import NotHere

__all__ = ["CHECK", "SlurmMpi", "judge"]


@dataclass(frozen=True)
class SlurmMpi:
    """What Slurm offers to MPI.

    Attributes
    ----------
    types
        What ``srun --mpi=list`` prints.
    default
        MpiDefault of the configuration, "" where it could not be read.
    pmi_library
        I_MPI_PMI_LIBRARY, which Intel MPI needs under srun.
    mpirun
        The mpirun of this environment.
    """

    types: tuple[str, ...]
    default: str = ""
    pmi_library: str = ""
    mpirun: str = "mpirun"


def _measure(here: Here) -> SlurmMpi:
    types = slurm.mpi_types()
    try:
        default = slurm.configuration().get("MpiDefault", "")
    except NotHere:
        default = ""
    pmi_library = here.environment.get("I_MPI_PMI_LIBRARY", "")
    return SlurmMpi(types, default, pmi_library, mpirun_of_environment())


def judge(facts: Mapping[int, SlurmMpi], job: Job) -> Verdict:
    """Find the type of ``srun --mpi=`` that the library needs among those offered."""
    slurm_mpi = facts[min(facts)]
    kind = library_kind(job.library)
    if not kind:
        raise NotHere("no MPI library whose needs are known")
    offered = ", ".join(slurm_mpi.types)
    fitting = fitting_type(job.library, slurm_mpi.types)
    if not fitting:
        return _none_fits(kind, offered, job, slurm_mpi.mpirun)
    value = f"{kind}: srun --mpi={fitting}"
    if fitting == slurm_mpi.default:
        value = f"{kind}: plain srun, which is --mpi={fitting} here"
    if kind == "Intel MPI" and job.launcher.kind == "srun" and not slurm_mpi.pmi_library:
        return Verdict(value, problems=(_no_pmi_library(),))
    return Verdict(value, f"one of {offered}")


def _none_fits(kind: str, offered: str, job: Job, mpirun: str) -> Verdict:
    report = failure if job.launcher.kind == "srun" else warning
    needs = "PMIx" if kind == "Open MPI" else "PMI-2 or PMIx"
    found = report(
        f"srun --mpi=list offers {offered}",
        f"{needs}, which {kind} needs to be started by srun",
        "start with mpirun inside the allocation; it needs no support of Slurm",
        mpirun_line(job, mpirun),
    )
    return Verdict(f"srun cannot start ranks of {kind}", problems=(found,))


def _no_pmi_library() -> Problem:
    return warning(
        "I_MPI_PMI_LIBRARY is not set",
        "the path of Slurm's libpmi2.so, without which Intel MPI does not find its job",
        "export I_MPI_PMI_LIBRARY=<folder of Slurm's libraries>/libpmi2.so",
    )


CHECK = Check(
    name="launch.slurm_mpi",
    title="srun and MPI",
    source="Slurm's MPI guide; Open MPI's page on Slurm",
    measure=_measure,
    judge=judge,
    where=Where.FIRST_RANK,
)
