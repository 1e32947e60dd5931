"""Hand a script to sbatch: first to be tested, then to be run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mpistrat.errors import ClusterError
from mpistrat.sites.submitting.slurm_commands import ask, overriding

__all__ = ["submit"]


def submit(script: str | Path) -> str:
    """Return the number of the job that a script became. **Local.**

    Parameters
    ----------
    script
        Its text, or its file: by that Slurm names a job whose script has no name for it.

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
    tested = _sbatch("--test-only", script)
    if tested.returncode != 0:
        raise ClusterError(f"sbatch refuses the script: {_last_lines(tested.stderr)}")
    if said := _last_lines(tested.stderr):
        print(f"tested: {said.replace('Job', 'job', 1)}", file=sys.stderr)
    done = _submitted(script)
    # The cluster's name follows where there are several.
    job = done.stdout.strip().partition(";")[0]
    if done.returncode != 0 or not job.isdecimal():
        raise ClusterError(f"sbatch refuses the script: {_last_lines(done.stderr)}")
    return job


def _sbatch(option: str, script: str | Path) -> subprocess.CompletedProcess[str]:
    if isinstance(script, str):
        return ask(["sbatch", option], script)
    return ask(["sbatch", option, str(script.absolute())])  # else it is looked for in PATH, too


def _submitted(script: str | Path) -> subprocess.CompletedProcess[str]:
    """Submit for good; where that is cut short, say that nobody knows whether there is a job."""
    unknown = "it may be submitted nevertheless: `squeue --me` shows your jobs"
    try:
        return _sbatch("--parsable", script)
    except KeyboardInterrupt:
        print(f"\nsbatch was interrupted; {unknown}", file=sys.stderr)
        raise
    except ClusterError as error:
        raise ClusterError(f"{error} The job has no number yet; {unknown}") from error


def _last_lines(text: str) -> str:
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in text.splitlines()]
    return "; ".join(line for line in lines[-3:] if line)
