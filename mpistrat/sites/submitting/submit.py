"""Hand a script to sbatch: first to be tested, then to be run."""

from __future__ import annotations

import os
import sys

from mpistrat.errors import ClusterError
from mpistrat.sites.submitting.slurm_commands import ask, overriding

__all__ = ["submit"]


def submit(script: str) -> str:
    """Return the number of the job that a script became. **Local.**

    Raises
    ------
    UsageError
        There is no sbatch, or some of Slurm's variables are set by hand.
    ClusterError
        Slurm refuses the script, and says why.
    """
    names = overriding(os.environ)
    if names:
        print(f"{', '.join(names)}: set here, and overrides the script", file=sys.stderr)
    tested = ask(["sbatch", "--test-only"], script)
    if tested.returncode != 0:
        raise ClusterError(f"sbatch refuses the script: {_last_lines(tested.stderr)}")
    if said := _last_lines(tested.stderr):
        print(f"tested: {said.replace('Job', 'job', 1)}", file=sys.stderr)
    done = ask(["sbatch", "--parsable"], script)
    job = done.stdout.strip().partition(";")[
        0
    ]  # the cluster's name follows where there are several
    if done.returncode != 0 or not job.isdecimal():
        raise ClusterError(f"sbatch refuses the script: {_last_lines(done.stderr)}")
    return job


def _last_lines(text: str) -> str:
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in text.splitlines()]
    return "; ".join(line for line in lines[-3:] if line)
