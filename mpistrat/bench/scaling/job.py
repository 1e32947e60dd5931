"""A run's launcher with its ranks: started, waited for, and ended with all that they started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from mpistrat.bench.scaling.ending import undisturbed
from mpistrat.errors import UsageError
from mpistrat.system.waiting import wait_until
from mpistrat.testing.launching import processes

__all__ = ["MOST_OUTPUT_BYTES", "end_of", "run_job"]

Outcome = Literal["ok", "failed", "timeout"]

MOST_OUTPUT_BYTES = 64 << 20
"""What a run may print; then it is ended."""

_KEPT_BYTES = 4000  # of it
_NAP_S = 0.02
_GRACE_S = 2.0
# The launcher is told to end when this process is killed, which then cannot end it.
_TIED = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM)\n"
    "os.getppid() == int(sys.argv[1]) and os.execvp(sys.argv[2], sys.argv[2:])\n"
)


def run_job(
    command: Sequence[str], environment: dict[str, str], output: Path, timeout_s: float
) -> Outcome:
    """Run a command to its end, or for `timeout_s` seconds; all of its processes end, too.

    Parameters
    ----------
    output
        The file that gets what it prints.

    Raises
    ------
    UsageError
        There is no such command.
    """
    with _started(command, environment, output) as job:
        is_over = wait_until(
            lambda: job.poll() is not None or output.stat().st_size > MOST_OUTPUT_BYTES,
            *(timeout_s, _NAP_S),
        )
        if not is_over:
            return "timeout"
        return "ok" if job.poll() == 0 else "failed"


def end_of(output: Path) -> str:
    """Return the end of what a job printed, and whether it was too much."""
    with output.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _KEPT_BYTES))
        text = file.read().decode(errors="replace").strip()
    if size > MOST_OUTPUT_BYTES:
        text += f"\nended, since it printed more than {MOST_OUTPUT_BYTES >> 20} MiB"
    return text


@contextmanager
def _started(
    command: Sequence[str], environment: dict[str, str], output: Path
) -> Iterator[subprocess.Popen[bytes]]:
    if shutil.which(command[0], path=environment.get("PATH")) is None:
        raise UsageError(f"{command[0]}: no such program; --launch names another launcher")
    token, mark = processes.new_token()
    tied = [sys.executable, "-S", "-c", _TIED, str(os.getpid()), *command]
    job = None
    try:
        with output.open("wb") as file:
            job = subprocess.Popen(
                tied if sys.platform == "linux" else list(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment | {processes.TOKEN_VARIABLE: mark, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C reaches the suite alone, which ends the job
            )
        yield job
    finally:
        with undisturbed():
            # By its token, too: a signal may have come before this function knew of it.
            processes.end_all(token, [job.pid] if job else [], _GRACE_S)
            if job is not None:
                # One that is blocked in the kernel is left: the other runs need not wait for it.
                with suppress(subprocess.TimeoutExpired):
                    job.wait(_GRACE_S)
