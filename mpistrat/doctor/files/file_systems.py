"""Tell the file system that a path is on, by the mounts of this process."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["MEMORY", "NETWORK", "file_system", "mount_type"]

MEMORY = frozenset({"tmpfs", "ramfs"})
NETWORK = frozenset(
    {"lustre", "nfs", "nfs4", "gpfs", "beegfs", "wekafs", "ceph", "panfs", "pvfs2", "cifs", "smb3"}
    | {"afs", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.ceph", "9p", "orangefs", "daos"}
)
_MOUNTS = Path("/proc/self/mountinfo")


def file_system(path: str | os.PathLike[str]) -> str:
    """Return the type of the file system that holds a path, such as "lustre"; "" if unknown."""
    try:
        return mount_type(os.path.realpath(path), _MOUNTS.read_text())
    except OSError:
        return ""


def mount_type(path: str, mounts: str) -> str:
    """Return the type of the deepest mount above an absolute path.

    Parameters
    ----------
    path
        Without symbolic links.
    mounts
        The lines of ``/proc/self/mountinfo``.
    """
    deepest, kind = "", ""
    for line in mounts.splitlines():
        words = line.split()
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), words[4])
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        # Of several mounts on one point the last one is seen.
        if is_above and len(point) >= len(deepest):
            deepest, kind = point, words[words.index("-") + 1]
    return kind
