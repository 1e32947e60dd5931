"""Find the names of the hosts of this process's Slurm step or job."""

from __future__ import annotations

import os
import subprocess

from mpistrat.cluster.slurm import host_list

__all__ = ["expand", "job_list", "step_list"]

_SCONTROL_S = 10.0
_STEP = ("SLURM_STEP_NODELIST",)
_JOB = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")


def step_list() -> tuple[str, str] | None:
    """Return (variable, list of hosts) of the step that srun started, or None. **Local.**"""
    return _first(_STEP)


def job_list() -> tuple[str, str] | None:
    """Return (variable, list of hosts) of the whole job, or None outside of one. **Local.**"""
    return _first(_JOB)


def expand(text: str) -> list[str]:
    """Return the hosts of Slurm's list of them, in its order. **Local.**

    Slurm's own command does it; where that cannot be run, `host_list.expand` does.

    Raises
    ------
    UsageError
        It is no list of hosts.
    """
    command = ["scontrol", "show", "hostnames", text]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SCONTROL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return host_list.expand(text)  # containers have no scontrol
    found = done.stdout.split()
    return found if done.returncode == 0 and found else host_list.expand(text)


def _first(names: tuple[str, ...]) -> tuple[str, str] | None:
    return next(((name, os.environ[name]) for name in names if os.environ.get(name)), None)
