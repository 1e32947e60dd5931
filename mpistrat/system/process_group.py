"""Run a command with all the processes that it starts as one group, which ends as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from mpistrat.errors import BackendUnavailableError
from mpistrat.system.deferred_signals import ENDING_SIGNALS, signals_deferred

__all__ = ["kill_group", "started_group"]


@contextmanager
def started_group(
    command: Sequence[str], env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a session of its own, without input; what it says goes to one pipe.

    Whatever ends the block early, Ctrl-C and a signal's handler too, kills the whole group; after
    the block it is waited for.

    Raises
    ------
    BackendUnavailableError
        It cannot be started.
    """
    process = None
    try:
        # A handler that raises while the command starts would leave it running, known to nobody.
        with signals_deferred(*ENDING_SIGNALS):
            process = _started(command, env)
        yield process
    except BaseException:
        if process is not None:
            kill_group(process)
        raise
    finally:
        if process is not None:
            with process:  # closes the pipe, and waits
                pass


def _started(command: Sequence[str], env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,  # which is its process group
        )
    except OSError as error:
        raise BackendUnavailableError(f"cannot start {command[0]}: {error}") from error


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group, and the whole group."""
    with suppress(ProcessLookupError):  # it has just ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
