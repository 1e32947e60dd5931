"""Submit jobs to the Slurm of the tests by ``mpistrat slurm submit``."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from helpers.slurm.cluster import SlurmCluster
from helpers.slurm.command import mpistrat_slurm
from mpistrat.testing.placement import slower

__all__ = ["job_of", "render", "submit"]

_SITE = ("--site", "generic-slurm", "--time", "10:00")


def submit(
    slurm: SlurmCluster, folder: Path, *options: str, program: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Submit a job from a folder, and wait for its end; its output is the command's."""
    command = ("submit", *_SITE, *options, "--", *program)
    timeout_s = 110 * slower()
    return mpistrat_slurm(
        *command, folder=folder, timeout_s=timeout_s, variables=slurm.environment
    )


def render(slurm: SlurmCluster, folder: Path, *options: str, program: Sequence[str]) -> str:
    """Return the script that `submit` would submit."""
    command = ("render", *_SITE, *options, "--", *program)
    done = mpistrat_slurm(*command, folder=folder, variables=slurm.environment)
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout


def job_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the number of the job that the command has submitted."""
    line = next(line for line in done.stderr.splitlines() if line.endswith(" is submitted"))
    return line.split()[1]
