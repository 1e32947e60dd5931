"""Run Slurm's commands, each with a deadline, and without the variables of another job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from mpistrat.errors import ClusterError, UsageError

__all__ = ["ask", "environment", "overriding"]

_TIMEOUT_S = 60.0
# Of the commands themselves; all other variables SLURM_* are of a job.
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_TIME_FORMAT")


def ask(command: Sequence[str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm's and return what it said; it may have failed. **Local.**

    Raises
    ------
    UsageError
        The command is not there.
    ClusterError
        It has not answered in time.
    """
    try:
        done = subprocess.run(
            command,
            input=None if stdin is None else stdin.encode("utf-8", "surrogateescape"),
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=environment(os.environ),
        )
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no {command[0]} here; run this on a login node of a machine with Slurm"
            " (some need `module load slurm`), or render the script and take it there"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(
            f"{command[0]} has not answered for {_TIMEOUT_S:g} s; is slurmctld up (scontrol ping)?"
        ) from error
    said, errors = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(command, done.returncode, said, errors)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those of the job that this process may run in.

    sbatch hands all variables on: a new job would begin with those of another one.

    Raises
    ------
    UsageError
        Only some of a job's variables are set.
    """
    pair = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST")
    present = [name for name in pair if name in variables]
    if len(present) == 1:
        missing = next(name for name in pair if name not in variables)
        raise UsageError(
            f"{present[0]}={variables[present[0]]!r} is set and {missing} is not: Slurm sets both;"
            " run `unset ${!SLURM_@}`, and start again"
        )
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith("SLURM_") or name in _KEPT
    }


def overriding(variables: Mapping[str, str]) -> list[str]:
    """Return the variables by which sbatch overrides what a script says."""
    return sorted(name for name in variables if name.startswith("SBATCH_"))
