"""Find and end the processes of one job, wherever its launcher put them.

Launchers move ranks to sessions and process groups of their own, so a group kill misses them.
Every process of a job therefore carries a token in its environment, and on Linux the processes
are found by it, orphans too. Elsewhere mpirun and the process ids that the ranks wrote down must
do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Iterable
from pathlib import Path

from mpistrat.system.processes import process_status
from mpistrat.system.waiting import wait_until

__all__ = ["TOKEN_VARIABLE", "end_all", "is_alive", "members", "new_token", "send"]

TOKEN_VARIABLE = "MPISTRAT_TEST_JOB"
_PROC = Path("/proc")


def new_token() -> tuple[str, str]:
    """Return a token, and the value of TOKEN_VARIABLE that marks a process with it.

    The value keeps the tokens of jobs that this process itself belongs to: ending an outer job
    ends the jobs that its ranks launched.
    """
    token = uuid.uuid4().hex
    return token, f"{os.environ.get(TOKEN_VARIABLE, '')}:{token}"


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped (a zombie) does not."""
    try:
        return not process_status.read(pid).has_ended
    except OSError:
        pass
    # With /proc a process that cannot be read there is gone.
    if _PROC.joinpath("self").exists():
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _carries(pid: int, token: str) -> bool:
    """Tell whether a process was started with the token in its environment."""
    try:
        # This is the environment that the program was started with, whatever it has changed since.
        return token.encode() in (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # gone, or another user's
        return False


def members(token: str) -> list[int]:
    """Return the ids of the live processes that carry a token (on Linux; elsewhere none)."""
    pids = (int(entry.name) for entry in _PROC.glob("[0-9]*"))
    return [pid for pid in pids if pid != os.getpid() and _carries(pid, token) and is_alive(pid)]


def send(pids: Iterable[int], number: signal.Signals, token: str) -> None:
    """Send a signal to those of the processes that (still) carry the token."""
    for pid in pids:
        with contextlib.suppress(OSError):
            if hasattr(os, "pidfd_open"):
                _send_by_handle(pid, number, token)
            else:
                os.kill(pid, number)


def _send_by_handle(pid: int, number: signal.Signals, token: str) -> None:
    """Send through a handle, so that an id that was given to another process is never hit."""
    # The handle first, then the look at the token: it stays with the process that was looked at.
    handle = os.pidfd_open(pid)
    try:
        if _carries(pid, token):
            signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def end_all(token: str, pids: Iterable[int] = (), grace_s: float = 2.0) -> list[int]:
    """End every process of a job: ask, wait for `grace_s` seconds, then kill.

    Parameters
    ----------
    token
        The job's token.
    pids
        Processes known to belong to it, for systems where they cannot be found by the token.
    grace_s
        Seconds between SIGTERM and SIGKILL, at most.

    Returns
    -------
    list of int
        Processes that even SIGKILL did not end within 5 s (blocked in the kernel).
    """
    # Of an iterator nothing would be left for the second signal.
    known = list(pids)
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        _end_by(number, patience_s, token, known)
    return _alive(token, known)


def _end_by(number: signal.Signals, patience_s: float, token: str, known: list[int]) -> None:
    """Send a signal to what is left of a job; wait until that has ended, or patience does."""

    def kill_again(_: float) -> None:
        if number == signal.SIGKILL:  # a launcher may have started one more meanwhile
            send(_alive(token, known), number, token)

    send(_alive(token, known), number, token)
    wait_until(lambda: not _alive(token, known), patience_s, 0.02, look=kill_again)


def _alive(token: str, known: list[int]) -> list[int]:
    if _PROC.joinpath("self").exists():
        return members(token)
    return [pid for pid in known if is_alive(pid)]
