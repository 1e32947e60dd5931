"""What Linux knows of this process: when it began, its memory, threads and open files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mpistrat.errors import UsageError

__all__ = ["Holdings", "began_s", "now_s"]

_PROC = Path("/proc/self")
_BEGAN = 19  # starttime, counted from the state, which follows the name in parentheses
_SHARED = ("/memfd:", "/dev/shm/", "/SYSV")


def now_s() -> float:
    """Return the seconds since this machine started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def began_s() -> float:
    """Return when this process began, in seconds as of `now_s`, to a hundredth.

    Raises
    ------
    UsageError
        The system is not Linux.
    """
    try:
        stat = (_PROC / "stat").read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise UsageError(f"startup reads /proc, which is Linux's: {error}") from error
    return int(stat.rpartition(")")[2].split()[_BEGAN]) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Holdings:
    """What a process holds.

    Attributes
    ----------
    pss_bytes
        Its memory: of pages that several processes have mapped, its share.
    shared_bytes
        Its share of memory that processes made to share: the sum over a node's ranks is what
        lies there.
    own_shared_bytes
        The part of `shared_bytes` that is mpistrat's; the rest is mostly MPI's.
    threads, fds, sockets, pidfds
        How many it has: `fds` are all open files, the others are among them.
    """

    pss_bytes: int
    shared_bytes: int
    own_shared_bytes: int
    threads: int
    fds: int
    sockets: int
    pidfds: int

    @classmethod
    def now(cls) -> Holdings:
        """Return what this process holds now. **Local.**"""
        mapped = list(_mappings())
        shared = [(path, pss) for path, pss in mapped if path.startswith(_SHARED)]
        files = list(_open_files())
        return cls(
            pss_bytes=sum(pss for _, pss in mapped),
            shared_bytes=sum(pss for _, pss in shared),
            own_shared_bytes=sum(pss for path, pss in shared if "mpistrat" in path),
            threads=len(list((_PROC / "task").iterdir())),
            fds=len(files),
            sockets=sum(file.startswith("socket:") for file in files),
            pidfds=sum("[pidfd]" in file for file in files),
        )


def _mappings() -> Iterator[tuple[str, int]]:
    """Yield each mapping's path, or "", and its proportional share in bytes."""
    path = ""
    for line in (_PROC / "smaps").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):  # the head: addresses, rights, offset, device, inode, path
            path = (line.split(maxsplit=5)[5:] or [""])[0]
        elif name == "Pss:":
            yield path, int(rest.split()[0]) * 1024


def _open_files() -> Iterator[str]:
    for link in (_PROC / "fd").iterdir():
        with suppress(FileNotFoundError):  # that of this very listing
            yield os.readlink(link)
