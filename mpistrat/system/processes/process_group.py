"""Run a command with the processes that it starts as one group, which can be killed as a whole."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import cast

from mpistrat.errors import BackendUnavailableError

__all__ = ["kill_group", "started_group"]

_START_S = 30.0  # a start takes milliseconds


@contextmanager
def started_group(
    command: Sequence[str], env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a session of its own, without input; what it says goes to one pipe.

    Its end is waited for after the block. What ends the block or that wait early kills the group:
    Ctrl-C and what a signal's handler raises, too.

    Raises
    ------
    BackendUnavailableError
        It cannot be started, or not in 30 s.
    """
    start = _Start(command, env)
    try:
        process = start.wait()
        yield process
        with process:  # waits, and closes the pipe
            pass
    except BaseException:
        start.give_up()
        raise


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group, and the whole group, unless its end is known."""
    if process.returncode is None:  # else the group's number may be somebody else's
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class _Start:
    """Starts a command in a thread, where no signal's handler runs.

    In the main thread one that raises could end `Popen` with the process running, known to nobody.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None) -> None:
        self._command, self._env = command, env
        self._over = threading.Lock()  # released when there is a process or an error
        self._over.acquire()
        self._lock = threading.Lock()  # held while it starts, and while it is killed
        self._is_given_up = False
        self._process: subprocess.Popen[bytes] | None = None
        self._error: BaseException | None = None

    def wait(self) -> subprocess.Popen[bytes]:
        # Not by threading.Thread: a signal in its start() becomes a RuntimeError.
        _thread.start_new_thread(self._run, ())
        if not self._over.acquire(timeout=_START_S):
            raise BackendUnavailableError(
                f"{self._command[0]} has not started in {_START_S:g} s; the file system that it is"
                " on may hang"
            )
        if isinstance(self._error, OSError):
            why = f"cannot start {self._command[0]}: {self._error.strerror}"
            raise BackendUnavailableError(why) from self._error
        if self._error is not None:
            raise self._error
        return cast("subprocess.Popen[bytes]", self._process)

    def give_up(self) -> None:
        """Kill what was started, and start nothing any more."""
        self._is_given_up = True
        if not self._lock.acquire(timeout=_START_S):
            return  # what still comes is killed by the thread
        try:
            self._end()
        finally:
            self._lock.release()

    def _end(self) -> None:
        if self._process is not None:
            kill_group(self._process)
            if self._process.stdout is not None:
                self._process.stdout.close()

    def _run(self) -> None:
        with self._lock:
            if self._is_given_up:
                return
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    start_new_session=True,  # which is its process group
                )
            except BaseException as error:  # noqa: BLE001 - wait() raises it
                self._error = error
            if self._is_given_up:
                self._end()
        self._over.release()
