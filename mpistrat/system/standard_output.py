"""Flush a rank's standard output and error before it aborts the job, so that no message is lost.

A launcher reads what a rank prints from a pipe, and passes it on. If the job is aborted, MPICH's
drops what it has not read by then. So a rank that aborts the job first waits until its pipes are
empty, and each message is one write, since what others print comes between two.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
import termios
import time
import traceback
from types import TracebackType

from mpistrat.system.waiting import wait_until

__all__ = ["flush", "show_error", "wait_until_read"]

_LIMIT_S = 1.0  # a launcher that does not read for so long is not waited for
_PASS_ON_S = 0.1  # between a launcher's parts: from the rank's machine to the terminal
_NAP_S = 2e-3


def flush() -> None:
    """Flush Python's buffers of standard output and error. **Local.**"""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # as under pythonw
            stream.flush()


def show_error(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show an uncaught exception as `sys.__excepthook__` does, but by one write. **Local.**"""
    if sys.stderr is not None:
        sys.stderr.write("".join(traceback.format_exception(kind, error, trace)))
        sys.stderr.flush()


def wait_until_read(limit_s: float = _LIMIT_S) -> None:
    """Wait until the launcher has read this process's output and can pass it on. **Local.**

    Returns at once if standard output and error are no pipes, and after `limit_s` in any case.
    """
    flush()
    if all(_unread(descriptor) is None for descriptor in (1, 2)):
        return
    wait_until(lambda: not any(map(_unread, (1, 2))), limit_s, _NAP_S)
    time.sleep(_PASS_ON_S)


def _unread(descriptor: int) -> int | None:
    """Return how many bytes the reader of a pipe or socket has not taken, None of other files."""
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode):
            # Linux answers at the writing end of a pipe, too.
            return _ask(descriptor, termios.FIONREAD)
        return _ask(descriptor, termios.TIOCOUTQ) if stat.S_ISSOCK(mode) else None
    except OSError:  # closed, or a kind of socket that does not tell
        return None


def _ask(descriptor: int, what: int) -> int:
    answer = fcntl.ioctl(descriptor, what, struct.pack("i", 0))
    return int(struct.unpack("i", answer)[0])
