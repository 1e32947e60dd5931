"""Lock files between processes, with a deadline."""

from __future__ import annotations

import fcntl
from typing import IO, Any

from mpistrat.system.waiting import wait_until

__all__ = ["try_to_lock", "try_to_share"]


def try_to_lock(file: int | IO[Any], timeout_s: float, nap_s: float) -> bool:
    """Lock an open file or folder until it is closed; return False at the deadline. **Local.**

    Only those who ask for the lock keep each other out.

    Parameters
    ----------
    file
        The descriptor, or what has one. Each opening of a file is a holder of its own.
    timeout_s
        Seconds to wait while another holds the lock; it is tried once at least.
    nap_s
        Seconds between two tries.

    Raises
    ------
    OSError
        The file system has no locks.
    """
    return wait_until(lambda: _has(file, fcntl.LOCK_EX), timeout_s, nap_s)


def try_to_share(file: int | IO[Any]) -> bool:
    """Take a shared lock on an open file, which excludes `try_to_lock`. **Local.**

    It does not wait; False if somebody has the file for himself. `try_to_lock` on the same opening
    changes this lock into its own, or, where others share it, gives it back.

    Raises
    ------
    OSError
        The file system has no locks.
    """
    return _has(file, fcntl.LOCK_SH)


def _has(file: int | IO[Any], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
