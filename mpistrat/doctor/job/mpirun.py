"""Find the mpirun that belongs to this Python's MPI library, and the one that PATH has first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["mpirun_of_environment", "mpirun_on_path", "owner"]

_ASK_S = 5.0
_BANNERS = (
    ("Intel(R) MPI", "Intel MPI"),
    ("Open MPI", "Open MPI"),
    ("OpenRTE", "Open MPI"),
    ("open-mpi", "Open MPI"),
    ("HYDRA", "MPICH"),
)


def mpirun_of_environment() -> str:
    """Return the mpirun of this Python's environment, else ``"mpirun"``."""
    own = Path(sys.prefix) / "bin" / "mpirun"
    return str(own) if os.access(own, os.X_OK) else "mpirun"


def mpirun_on_path() -> str:
    """Return the mpirun that a shell would start, or ""."""
    return shutil.which("mpirun") or shutil.which("mpiexec") or ""


def owner(mpirun: str) -> str:
    """Return whose an mpirun is, in the words of `library_kind`; "" if it does not say."""
    try:
        said = subprocess.run(
            [mpirun, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    text = said.stdout + said.stderr
    return next((kind for banner, kind in _BANNERS if banner in text), "")
