"""Identify a process by a unique number, and tell from it whether it has ended."""

from __future__ import annotations

import os
import select
from functools import cache
from pathlib import Path

__all__ = ["has_ended", "is_dead", "my_tag", "pid_of"]

_START_BITS = 34  # the clock of the kernel's ticks needs five years to come round
_STATE, _START = 0, 19  # of /proc/<pid>/stat, counted from behind the program's name


def my_tag() -> int:
    """Return a number below 2⁵⁶ that no other process of this machine has or had."""
    pid = os.getpid()
    found = _status(pid)
    return pid << _START_BITS | (0 if found is None else found[1])


def pid_of(tag: int) -> int:
    """Return the process id in a tag."""
    return tag >> _START_BITS


def is_dead(tag: int) -> bool:
    """Tell whether the process has certainly ended; one whose state is hidden counts as alive."""
    try:
        found = _status(pid_of(tag))
    except OSError:
        return False
    if found is None:
        return _is_missing(pid_of(tag))
    state, start = found
    known = tag & ((1 << _START_BITS) - 1)
    return state in "ZX" or known not in (0, start)


def has_ended(tag: int) -> bool:
    """Tell the same as `is_dead` in a microsecond, by a pidfd that stays open."""
    fd = _descriptor(tag)
    if fd < 0:
        return is_dead(tag)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


@cache
def _descriptor(tag: int) -> int:
    """Return a pidfd, which becomes readable when the process ends; -1 where there is none."""
    try:
        fd = os.pidfd_open(pid_of(tag))
    except (AttributeError, OSError):
        return -1
    if is_dead(tag):  # it is of another process, which has its number now
        os.close(fd)
        return -1
    return fd


def _status(pid: int) -> tuple[str, int] | None:
    """Return the state of a process and when it started; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return fields[_STATE], int(fields[_START]) & ((1 << _START_BITS) - 1)


def _is_missing(pid: int) -> bool:
    """Ask the kernel, where /proc has no entry or does not exist."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
