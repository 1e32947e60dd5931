"""Remove what an MPI library leaves in memory where its ranks were killed.

MPICH 5 keeps the name of the memory that the ranks of a machine share (6 MB a job) until
MPI_Finalize, since a rank may come to it late: so a job that is killed leaves it behind, in memory
that nobody gets back before the machine restarts. A run of this project's tests kills some hundred
jobs.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

__all__ = ["remove_segments"]

_NAMES = ("mpich_shm_*", "mpich_vci_*")
_SETTLED_S = 2.0  # of a file that is younger, a rank may be about to map it


def remove_segments(since_s: float, folder: Path = Path("/dev/shm")) -> list[Path]:
    """Remove this user's memory of MPICH's that no process has mapped.

    Parameters
    ----------
    since_s
        Seconds of ``time.time()``: what was written before stays, as does what is younger than
        2 s.
    folder
        Where it lies.

    Returns
    -------
    list of Path
        What was removed.
    """
    mapped = _maps()
    found = (path for name in _NAMES for path in folder.glob(name))
    return [
        path
        for path in found
        if str(path) not in mapped and _is_ours(path, since_s) and _remove(path)
    ]


def _maps() -> str:
    """Return what the processes of this user have mapped."""
    texts = []
    for file in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # gone, or another user's
            texts.append(file.read_text(errors="replace"))
    return "".join(texts)


def _is_ours(path: Path, since_s: float) -> bool:
    try:
        state = path.stat()
    except FileNotFoundError:
        return False
    is_settled = since_s <= state.st_mtime <= time.time() - _SETTLED_S
    return is_settled and state.st_uid == os.geteuid()


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
