"""Count the CPU cores that this process may use, and its share beside other ranks."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

__all__ = ["fair_share", "quota", "usable"]

_MOUNT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def usable() -> frozenset[int]:
    """Return the logical cores that this process may run on. **Local.**"""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def quota(membership: Path = _MEMBERSHIP, mount: Path = _MOUNT) -> float | None:
    """Return the cores that the process's control groups (cgroups) allow; None: all. **Local.**

    Parameters
    ----------
    membership, mount
        The file that names the control groups, and where these are.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    found = [limit for line in lines for limit in _limits(line, mount)]
    return min(found, default=None)


def _limits(line: str, mount: Path) -> Iterator[float]:
    """Yield the CPU limits of a cgroup and of its parents, for cgroups version 1 or 2."""
    _, controllers, name = line.split(":", 2)
    # Version 2 has one line, which names no controllers.
    if controllers and "cpu" not in controllers.split(","):
        return
    root = mount / controllers
    group = root / name.lstrip("/")
    # A parent's limit holds for all groups below it.
    for folder in (group, *group.parents):
        if folder.is_relative_to(root):
            text = _text(folder / "cpu.max") or (
                f"{_text(folder / 'cpu.cfs_quota_us')} {_text(folder / 'cpu.cfs_period_us')}"
            )
            words = text.split()
            # "max", or -1 in version 1, is no limit, and no digits.
            if len(words) == 2 and all(word.isdigit() for word in words):
                yield int(words[0]) / int(words[1])


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def fair_share(
    mine: Collection[int], on_machine: Sequence[Collection[int]], limit: float | None
) -> int:
    """Return the cores of a rank, where ranks that share a core have equal parts. **Local.**

    Parameters
    ----------
    mine
        Cores that this rank may use.
    on_machine
        Those of every rank of the machine, this one's among them.
    limit
        How many cores' time all of them have together; None for any.

    Returns
    -------
    int
        A whole number of cores, at least 1.
    """
    share = sum(1 / sum(core in cores for cores in on_machine) for core in mine)
    if limit is not None:
        share = min(share, limit / len(on_machine))
    # A sum of thirds may be slightly less than a whole core.
    return max(1, int(share + 1e-6))
