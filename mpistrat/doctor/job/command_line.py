"""Write the command lines with which this job is to be started."""

from __future__ import annotations

from collections.abc import Sequence

from mpistrat.cluster.slurm.mpi_types import fitting_type
from mpistrat.doctor.job.job import Job

__all__ = ["mpirun_line", "right_line", "srun_line"]


def srun_line(job: Job, *options: str, keep_mpi: bool = True) -> str:
    """Return the srun that starts this job's ranks, with further options.

    Parameters
    ----------
    keep_mpi
        Whether its ``--mpi`` stays as it is.
    """
    mpi = job.launcher.mpi_type if keep_mpi else ""
    words = ["srun", *([f"--mpi={mpi}"] if mpi else []), *options]
    nodes = job.launcher.nodes or len(job.nodes)
    return " ".join([*words, f"-N {nodes}", f"-n {_size(job)}", job.program])


def mpirun_line(job: Job, mpirun: str = "mpirun", size: int = 0) -> str:
    """Return the mpirun that starts this job's ranks, or `size` of them."""
    return f"{mpirun} -n {size or _size(job)} {job.program}"


def right_line(job: Job, types: Sequence[str], mpirun: str) -> str:
    """Return the command line that starts this job's ranks as one job.

    Parameters
    ----------
    types
        What ``srun --mpi=list`` offers; none outside of Slurm.
    mpirun
        The mpirun of the MPI library.
    """
    command = job.site.launcher.command.value if job.site else ""
    if command == "ibrun":
        return f"ibrun {job.program}"
    if command == "mpiexec":
        nodes = max(1, job.launcher.nodes)
        return f"mpiexec -n {_size(job)} -ppn {-(-_size(job) // nodes)} {job.program}"
    is_in_slurm = job.launcher.kind == "srun" or job.launcher.allocated > 0
    stated = job.site.launcher.mpi if job.site else None
    is_offered = stated is not None and (not types or stated.value in types)
    fitting = stated.value if stated and is_offered else fitting_type(job.library, types)
    if is_in_slurm and fitting:
        return srun_line(job, f"--mpi={fitting}", keep_mpi=False)
    return mpirun_line(job, mpirun)


def _size(job: Job) -> int:
    return max(job.launcher.size, job.launcher.allocated, job.size)
