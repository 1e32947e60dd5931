"""Run Slurm's commands with a deadline, and its daemons until they are ended."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpistrat.errors import ClusterError

__all__ = ["SlurmError", "run", "start_daemon", "why_not_here"]

_PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "munged")
_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # not on every user's PATH
_PACKAGES = "slurmctld slurmd slurm-client munge"
_GRACE_S = 10.0


class SlurmError(ClusterError):
    """The Slurm of the tests did not do what it was told."""


def why_not_here() -> str | None:
    """Return why no Slurm can be started on this machine; None if it can. **Local.**"""
    missing = [name for name in _PROGRAMS if _find(name) is None]
    if missing:
        return f"no {', '.join(missing)} here; apt-get install --no-install-recommends {_PACKAGES}"
    return None if os.geteuid() == 0 else "Slurm's daemons have to be started as root"


def _find(name: str) -> str | None:
    folders = [os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS]
    return shutil.which(name, path=os.pathsep.join(folders))


def start_daemon(
    command: Sequence[str], environment: Mapping[str, str], output: Path
) -> subprocess.Popen[bytes]:
    """Start a daemon that stays in the foreground; what it prints goes to a file."""
    program = _find(command[0]) or command[0]
    with output.open("ab") as file:
        # In a session of its own: Ctrl-C is for the tests, which then end it.
        return subprocess.Popen(
            [program, *command[1:]],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    folder: Path | None = None,
    is_to_succeed: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end.

    Parameters
    ----------
    command
        Program and arguments; no shell reads them.
    environment
        All variables that it gets.
    timeout_s
        Seconds after which it is ended.
    folder
        Where it runs; None for the current folder.
    is_to_succeed
        Whether another exit status than 0 is an error.

    Raises
    ------
    SlurmError
        It did not end in time, or failed; with all that it printed.
    """
    process = subprocess.Popen(
        list(command),
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        output, errors = _end(process)
        raise SlurmError(
            f"{_shown(command)} did not end within {timeout_s:g} s; it printed:\n{output}{errors}"
        ) from None
    except BaseException:  # Ctrl-C, or the deadline of the test
        _end(process)
        raise
    if is_to_succeed and process.returncode:
        raise SlurmError(
            f"{_shown(command)} ended with status {process.returncode}; it printed:\n"
            f"{output}{errors}"
        )
    return subprocess.CompletedProcess(list(command), process.returncode, output, errors)


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End a command: srun takes SIGTERM to its ranks, which SIGKILL would leave behind."""
    process.terminate()
    try:
        return process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate(timeout=_GRACE_S)


def _shown(command: Sequence[str]) -> str:
    text = " ".join(command)
    return text if len(text) <= 300 else f"{text[:300]} ..."
