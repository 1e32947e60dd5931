"""Read what the launcher (mpirun, srun, ...) set in the environment, before MPI starts."""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["expected_rank", "expected_size", "local_size", "variables", "was_launched"]

_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID")
_LOCAL_SIZE_VARIABLES = (
    *("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"),
    *("PALS_LOCAL_SIZE",),
)
_LAUNCH_PREFIXES = (
    *("OMPI_COMM_WORLD_", "PMI_", "PMIX_", "PALS_", "MV2_COMM_", "FLUX_TASK_"),
    *("ALPS_APP_", "MPI_LOCALRANKID", "JSM_NAMESPACE_"),
)
_SLURM_STEP = ("SLURM_STEP_ID", "SLURM_PROCID")
_SETTINGS = "PMIX_MCA_"  # users set these for all their jobs, also where there is none


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
    # In an allocation, outside of a step, Slurm sets variables, too, but has started no ranks.
    is_step = all(name in os.environ for name in _SLURM_STEP)
    return found | {name: os.environ[name] for name in _SLURM_STEP if is_step}


def expected_size() -> tuple[str, int] | None:
    """Return (variable, number of ranks) that the launcher announced, or None. **Local.**"""
    in_step = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"] if _is_in_step() else []
    return _number([*_SIZE_VARIABLES, *in_step])


def expected_rank() -> tuple[str, int] | None:
    """Return (variable, rank) that the launcher gave this process, or None. **Local.**"""
    return _number([*_RANK_VARIABLES, *(["SLURM_PROCID"] if _is_in_step() else [])])


def local_size() -> tuple[str, int] | None:
    """Return (variable, number of ranks on this node), or None. **Local.**"""
    return _number(_LOCAL_SIZE_VARIABLES)


def _is_in_step() -> bool:
    return "SLURM_STEP_ID" in os.environ


def _number(names: Iterable[str]) -> tuple[str, int] | None:
    values = ((name, os.environ.get(name, "")) for name in names)
    return next(((name, int(value)) for name, value in values if value.isdigit()), None)
