"""Tell whether a process of this machine has ended, known by its tag."""

from __future__ import annotations

import os

from mpistrat.system.liveness import pidfd
from mpistrat.system.processes import process_status
from mpistrat.system.processes.process_tag import is_tag_of, pid_of

__all__ = ["has_ended"]


def has_ended(tag: int) -> bool:
    """Tell whether a process has ended for sure; one whose state is hidden counts as alive.

    It takes a microsecond, but for the first time. **Local**, for any thread.
    """
    if tag in _ended:
        return True
    if tag not in _watched:
        _watched[tag] = _watch(tag)
    # Another thread may have removed it since, when it found that the process has ended.
    watched = _watched.get(tag)
    found = _has_ended_by_status(tag) if watched is None else pidfd.is_readable(watched.fd)
    if found:
        _ended.add(tag)
        _watched.pop(tag, None)
    return found


class _Watched:
    """A process that is asked after again and again, by its pidfd.

    Another thread may just poll that when this one finds that the process has ended: so it is
    closed with its last user.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


_ended: set[int] = set()
_watched: dict[int, _Watched | None] = {}  # None where there is no pidfd


def _watch(tag: int) -> _Watched | None:
    try:
        descriptor = pidfd.opened(pid_of(tag))
    except ProcessLookupError:
        return None
    if descriptor is None:
        return None
    watched = _Watched(descriptor)
    # Only now it is certain whose the descriptor is: the number may have been used again.
    return None if _has_ended_by_status(tag) else watched


def _has_ended_by_status(tag: int) -> bool:
    try:
        status = process_status.read(pid_of(tag))
    except (FileNotFoundError, ProcessLookupError):
        return _is_missing(pid_of(tag))
    except OSError:
        return False
    return status.has_ended or not is_tag_of(tag, status)


def _is_missing(pid: int) -> bool:
    """Ask the kernel, where /proc has no entry or does not exist."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # It exists, and is another user's.
    except PermissionError:
        pass
    return False
