"""Run a command to its end, write all that it says to a log, and follow its lines meanwhile."""

from __future__ import annotations

import os
import re
import select
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from mpistrat.errors import BackendUnavailableError
from mpistrat.system.processes.process_group import kill_group, started_group

__all__ = ["run_logged"]

_MOST_LINES = 12
_ERROR = re.compile(r"error|not found|no matching|cannot find|failed", re.IGNORECASE)
_TICK_S = 0.2
_BLOCK = 1 << 16


def run_logged(
    command: Sequence[str],
    log: Path,
    timeout_s: float,
    advice: str,
    *,
    env: Mapping[str, str] | None = None,
    follow: Callable[[str], object] = lambda _: None,
) -> None:
    """Run a command; add what it says to a log. **Local.**

    Parameters
    ----------
    timeout_s
        Seconds until the command and its child processes are killed.
    advice
        What a user can do where it fails.
    env
        The whole environment; default: this process's own.
    follow
        Called with each line, and with "" while there is none, some times a second.

    Raises
    ------
    BackendUnavailableError
        It cannot be started, failed, or took too long; the message names the log.
    """
    with log.open("ab") as file:
        file.write(f"$ {shlex.join(command)}\n".encode())
        file.flush()
        with started_group(command, env) as process:  # compilers are child processes
            said = _followed(process, file.write, time.monotonic() + timeout_s, follow)
    if said is None:
        raise BackendUnavailableError(
            f"{_name(command)} took longer than {timeout_s:g} s (--timeout) and was ended; its log"
            f" is {log}"
        )
    if process.returncode:
        raise BackendUnavailableError(
            f"{_name(command)} exited with {process.returncode}; {advice}. Its log is {log}, and"
            f" says:\n{_telling(said)}"
        )


def _followed(
    process: subprocess.Popen[bytes],
    write: Callable[[bytes], object],
    deadline: float,
    follow: Callable[[str], object],
) -> list[str] | None:
    """Return the lines of a process that has ended; kill it and return None at the deadline."""
    lines: list[str] = []
    rest = b""
    pipe = cast("IO[bytes]", process.stdout).fileno()
    while True:
        if time.monotonic() > deadline:
            kill_group(process)
            return None
        if not select.select([pipe], [], [], _TICK_S)[0]:
            follow("")
            continue
        block = os.read(pipe, _BLOCK)
        if not block:
            process.wait()
            return lines
        write(block)
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            lines.append(line.decode(errors="replace").rstrip())
            follow(lines[-1])


def _name(command: Sequence[str]) -> str:
    """Return the part of a command that says what it is: ``python -m pip wheel``."""
    return shlex.join([Path(command[0]).name, *command[1:4]])


def _telling(lines: Sequence[str]) -> str:
    """Return the lines that speak of errors, or else the last ones."""
    found = [line for line in lines if _ERROR.search(line) and len(line) < 400]
    return "\n".join((found or [line for line in lines if line])[-_MOST_LINES:])
