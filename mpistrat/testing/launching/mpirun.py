"""Find mpirun, tell whose it is, and build its command line and environment."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mpistrat.errors import ClusterError

__all__ = ["Launcher", "LauncherError", "find_launcher"]

Kind = Literal["mpich", "openmpi", "intel"]

_BANNERS: tuple[tuple[str, Kind], ...] = (
    ("Intel(R) MPI", "intel"),
    ("Open MPI", "openmpi"),
    ("open-mpi", "openmpi"),
    ("HYDRA", "mpich"),
)
_OPTIONS: dict[Kind, tuple[str, ...]] = {
    "mpich": (),
    "intel": (),
    # More ranks than cores is usual in tests: allow it, and let idle ranks give the core away.
    "openmpi": ("--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"),
}
_VARIABLES: dict[Kind, dict[str, str]] = {
    "mpich": {},
    # As for Open MPI: jobs side by side would be bound to the same cores.
    "intel": {"I_MPI_PIN": "0"},
    "openmpi": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
}
# What tells a process which rank of which job it is. A job started from inside another job (a
# batch script, a test) must not inherit it.
_IDENTITY = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_")
_SETTINGS = ("PMIX_MCA_",)


class LauncherError(ClusterError):
    """Ranks cannot be launched here: no launcher, no MPI library, or the two do not fit."""


@dataclass(frozen=True)
class Launcher:
    """An mpirun and the MPI library that it belongs to.

    Attributes
    ----------
    path
        The executable.
    kind
        ``"mpich"``, ``"openmpi"`` or ``"intel"``.
    """

    path: Path
    kind: Kind

    def command(self, ranks: int, options: Sequence[str] = ()) -> list[str]:
        """Return the command line that starts `ranks` ranks of the program appended to it."""
        return [str(self.path), *_OPTIONS[self.kind], *options, "-n", str(ranks)]

    def environment(self) -> dict[str, str]:
        """Return a copy of this process's environment, made fit for a job of its own."""
        kept = {
            name: value
            for name, value in os.environ.items()
            # Settings of PMIx are the user's, though they begin like its identity.
            if name.startswith(_SETTINGS) or not name.startswith(_IDENTITY)
        }
        return kept | _VARIABLES[self.kind]


def find_launcher() -> Launcher:
    """Return the mpirun of this Python's environment, else the first on PATH.

    Raises
    ------
    LauncherError
        If there is none, or its version text names no MPI library that we know.

    Notes
    -----
    The environment comes first since mpi4py loads the MPI library from there: an mpirun of another
    library would start that many jobs of one rank each.
    """
    return _find(sys.prefix, os.environ.get("PATH", ""))


@functools.cache
def _find(prefix: str, search_path: str) -> Launcher:
    places = os.pathsep.join([str(Path(prefix) / "bin"), search_path])
    found = shutil.which("mpirun", path=places) or shutil.which("mpiexec", path=places)
    if found is None:
        raise LauncherError(
            f"found no mpirun in {prefix}/bin or on PATH, and MPI jobs need one; "
            'pip install "mpistrat[mpich]" brings it, or load the MPI module of this machine'
        )
    return Launcher(Path(found), _kind(found))


def _kind(path: str) -> Kind:
    """Ask an mpirun which library it belongs to."""
    # Not by the name of the file: all libraries call it mpirun.
    asked = subprocess.run(
        [path, "--version"], capture_output=True, text=True, timeout=30, check=False
    )
    text = asked.stdout + asked.stderr
    for banner, kind in _BANNERS:
        if banner in text:
            return kind
    raise LauncherError(
        f"{path} --version does not name its MPI library: {text[:200]!r}; expected MPICH, "
        "Open MPI or Intel MPI; put the mpirun of one of them first on PATH"
    )
