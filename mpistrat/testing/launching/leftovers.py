"""Remove the shared memory that MPICH leaves behind when its ranks are killed.

MPICH 5 keeps the name of the memory that the ranks of a machine share (6 MB a job) until
MPI_Finalize, since a rank may come to it late: so a job that is killed leaves it behind, in memory
that nobody gets back before the machine restarts. A run of this project's tests kills some hundred
jobs.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

__all__ = ["remove_segments"]

_NAMES = ("mpich_shm_*", "mpich_vci_*")
_SETTLED_S = 10.0  # the ranks of a file that is younger may still be about to map it


def remove_segments(folder: Path = Path("/dev/shm")) -> list[Path]:
    """Remove this user's memory of MPICH's that no process has mapped, if it is 10 s old.

    Parameters
    ----------
    folder
        Where it lies.

    Returns
    -------
    list of Path
        What was removed.

    Notes
    -----
    Ranks in another container with the same ``/dev/shm`` are not seen. They lose the name only,
    which those that have mapped the memory do without.
    """
    settled = [path for name in _NAMES for path in folder.glob(name) if _is_settled(path)]
    mapped = _maps() if settled else ""  # after the look at their age: who maps one now, is seen
    return [path for path in settled if path.name not in mapped and _remove(path)]


def _is_settled(path: Path) -> bool:
    try:
        state = path.lstat()
    except OSError:  # gone
        return False
    is_ours = stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid()
    return is_ours and state.st_mtime <= time.time() - _SETTLED_S


def _maps() -> str:
    """Return what the processes of this user have mapped."""
    texts = []
    for file in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # gone, or another user's
            texts.append(file.read_text(errors="replace"))
    return "".join(texts)


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:  # gone, or another's by now
        return False
    return True
