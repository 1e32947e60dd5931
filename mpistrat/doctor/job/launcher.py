"""Tell which launcher started a process, by the variables that it sets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mpistrat.cluster.slurm import step
from mpistrat.cluster.slurm.mpi_types import library_kind

__all__ = [
    "ALONE",
    "Kind",
    "Launcher",
    "library_name",
    "of_environment",
]

Kind = Literal["alone", "srun", "mpirun", "mpiexec", "flux", "unknown"]

# Variables that tell of a launcher for certain. Those of srun are looked at last: where mpirun was
# called in a Slurm job it starts its helpers by srun, whose variables the ranks see, too.
_MARKS: tuple[tuple[str, Kind], ...] = (
    ("PALS_RANKID", "mpiexec"),
    ("OMPI_COMM_WORLD_SIZE", "mpirun"),
    ("MPI_LOCALNRANKS", "mpirun"),  # Hydra: MPICH and Intel MPI
    ("FLUX_TASK_RANK", "flux"),
)
_OTHERS = ("PMI_", "PMIX_RANK", "MV2_COMM_", "ALPS_APP_", "JSM_NAMESPACE_")


@dataclass(frozen=True)
class Launcher:
    """The launcher of a process.

    Attributes
    ----------
    kind
        "alone" where no launcher started the process.
    size, variable
        The number of ranks that it announced, and the variable that says so.
    nodes
        The number of nodes of the step; 0 where it is not known.
    mpi_type
        The type of ``srun --mpi=``.
    allocated
        Tasks of the Slurm allocation that the process is in; 0 outside.
    """

    kind: Kind
    size: int = 1
    variable: str = ""
    nodes: int = 0
    mpi_type: str = ""
    allocated: int = 0


ALONE = Launcher("alone")


def of_environment(
    environment: Mapping[str, str], announced: tuple[str, int] | None = None
) -> Launcher:
    """Return the launcher that set these variables.

    Parameters
    ----------
    environment
        The variables of the process.
    announced
        The variable with the number of ranks, and the number, where there is one.
    """
    variable, size = announced or ("", 1)
    return Launcher(
        kind=_kind(environment),
        size=size,
        variable=variable,
        nodes=_number(environment, "SLURM_STEP_NUM_NODES") or _number(environment, "SLURM_NNODES"),
        mpi_type=environment.get("SLURM_MPI_TYPE", ""),
        allocated=_number(environment, "SLURM_NTASKS") if "SLURM_JOB_ID" in environment else 0,
    )


def library_name(version_text: str) -> str:
    """Return an MPI library's name and version, from its version text, which is long."""
    kind = library_kind(version_text)
    version = re.search(r"(?:Version:? *|\bv|Library )(\d[\w.]*)", version_text)
    return f"{kind} {version[1]}" if kind and version else kind or version_text[:40].strip()


def _kind(environment: Mapping[str, str]) -> Kind:
    for variable, kind in _MARKS:
        if variable in environment:
            return kind
    if step.is_task(environment):
        return "srun"
    return "unknown" if any(name.startswith(_OTHERS) for name in environment) else "alone"


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdigit() else 0
