"""Flush a rank's standard output and error before it aborts the job, so that no message is lost.

A launcher reads what a rank prints from a pipe, and passes it on. If the job is aborted, MPICH's
drops what it has not read by then. So a rank that aborts the job first waits until its pipes are
empty, and each message is one write, since what others print comes between two.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
import termios
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from mpistrat.system.waiting import wait_until

__all__ = ["flush", "show", "show_error", "told_if_full", "wait_until_read"]

_LIMIT_S = 1.0  # a launcher that does not read for so long is not waited for
_PASS_ON_S = 0.1  # between a launcher's parts: from the rank's machine to the terminal
_NAP_S = 2e-3
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_NOT_WRITTEN = 2


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


def show(text: str) -> None:
    """Print a text, whole. **Local.**

    Raises
    ------
    OSError
        It cannot be written, as where a disk is full. What is printed later is dropped: Python
        would try again to write this, when the process ends.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        _drop()
        raise


@contextmanager
def told_if_full(program: str) -> Iterator[None]:
    """End with one line where standard output cannot be written in a block. **Local.**"""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        _drop()
        sys.stderr.write(f"{program}: cannot write: {error}\n")
        raise SystemExit(_NOT_WRITTEN) from None


def _drop() -> None:
    """Let standard output be the null device. **Local.**"""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


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
