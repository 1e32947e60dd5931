"""Read what the launcher (mpirun, srun, flux, ...) set in the environment, before MPI starts.

These variables check MPI's communicator and never take its place: it alone says which rank this is
(`mpistrat.cluster.launcher.mpi_agreement`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from mpistrat.cluster.slurm import step

__all__ = [
    "announced_ranks",
    "expected_rank",
    "expected_size",
    "is_srun",
    "local_rank",
    "local_size",
    "variables",
    "was_launched",
]

# In the order of trust: a launcher that was started by another one inherits its variables.
_SIZE_VARIABLES = (
    *("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE", "FLUX_JOB_SIZE"),
)
_RANK_VARIABLES = (
    *("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "FLUX_TASK_RANK"),
    "PMIX_RANK",
)
_LOCAL_RANK_VARIABLES = (
    *("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK"),
    *("MV2_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID"),
)
_LOCAL_SIZE_VARIABLES = (
    *("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"),
    *("PALS_LOCAL_SIZE",),
)
_LAUNCH_PREFIXES = (
    *("OMPI_COMM_WORLD_", "PMI_", "PMIX_", "PALS_", "MV2_COMM_", "FLUX_TASK_"),
    *("ALPS_APP_", "MPI_LOCALRANKID", "JSM_NAMESPACE_"),
)
_SETTINGS = "PMIX_MCA_"  # users set these for all their jobs, also where there is none
_SRUN_NAMESPACE = "slurm.pmix."  # what PMIx calls the jobs that srun starts


def was_launched() -> bool:
    """Tell whether a parallel launcher (mpirun, srun, ...) started this process. **Local.**"""
    return bool(variables())


def variables() -> dict[str, str]:
    """Return the launcher's variables in the environment, such as rank and size. **Local.**"""
    found = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_LAUNCH_PREFIXES) and not name.startswith(_SETTINGS)
    }
    return found | step.identity()


def is_srun() -> bool:
    """Tell whether srun itself started this rank, not an mpirun inside of a step. **Local.**"""
    others = ("OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK", "PALS_RANKID")
    if not step.is_inside() or any(name in os.environ for name in (*others, "FLUX_TASK_RANK")):
        return False
    # Of PMIx's servers, PRRTE (Open MPI's mpirun) has another namespace than srun.
    return os.environ.get("PMIX_NAMESPACE", _SRUN_NAMESPACE).startswith(_SRUN_NAMESPACE)


def expected_size() -> tuple[str, int] | None:
    """Return (variable, number of ranks) that the launcher announced, or None. **Local.**"""
    return _number([*_SIZE_VARIABLES, *(step.SIZE_VARIABLES if step.is_inside() else ())])


def expected_rank() -> tuple[str, int] | None:
    """Return (variable, rank) that the launcher gave this process, or None. **Local.**"""
    return next(iter(announced_ranks().items()), None)


def announced_ranks() -> dict[str, int]:
    """Return every launcher's rank of this process by variable, the innermost first. **Local.**"""
    names = [*_RANK_VARIABLES, *([step.RANK_VARIABLE] if step.is_inside() else [])]
    return {name: int(os.environ[name]) for name in names if _is_number(name)}


def local_rank() -> tuple[str, int] | None:
    """Return (variable, index among the ranks on this node), or None. **Local.**"""
    return _number([*_LOCAL_RANK_VARIABLES, *([step.LOCAL_RANK_VARIABLE] if is_srun() else [])])


def local_size() -> tuple[str, int] | None:
    """Return (variable, number of ranks on this node), or None. **Local.**"""
    found = _number(_LOCAL_SIZE_VARIABLES)
    return step.local_size() if found is None and is_srun() else found


def _number(names: Iterable[str]) -> tuple[str, int] | None:
    return next(((name, int(os.environ[name])) for name in names if _is_number(name)), None)


def _is_number(name: str) -> bool:
    return os.environ.get(name, "").isdecimal()
