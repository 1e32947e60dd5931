"""Locks that keep processes out of each other's files; a wait for one ends in time."""

from __future__ import annotations

import fcntl
import time
from typing import IO, Any

__all__ = ["try_to_lock"]


def try_to_lock(file: int | IO[Any], timeout_s: float, nap_s: float) -> bool:
    """Lock an open file or folder until it is closed; tell whether that went in time. **Local.**

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
    end = time.monotonic() + timeout_s
    while not _is_ours(file):
        if time.monotonic() >= end:
            return False
        time.sleep(nap_s)
    return True


def _is_ours(file: int | IO[Any]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
