"""Ask Slurm's commands about its version, its configuration and this job; each answer is kept."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import TypeVar

from mpistrat.cluster.slurm.mpi_types import read_types
from mpistrat.doctor.not_here import NotHere

__all__ = [
    "answer",
    "batch_script",
    "configuration",
    "job_record",
    "mpi_types",
    "parsed_version",
    "version",
]

T = TypeVar("T")
_COMMAND_S = 5.0
_LONGEST = 70


def _once(ask: Callable[[], T]) -> Callable[[], T]:
    """Keep the answer of a question, and also that there was none: a wait for it is long."""
    kept: list[T | NotHere] = []

    @functools.wraps(ask)
    def ask_once() -> T:
        if not kept:
            try:
                kept.append(ask())
            except NotHere as reason:
                kept.append(reason)
        if isinstance(kept[0], NotHere):
            raise kept[0]
        return kept[0]

    return ask_once


def answer(command: Sequence[str], timeout_s: float = _COMMAND_S, *, errors: bool = False) -> str:
    """Return what a command prints; with `errors` also what it prints on standard error.

    Raises
    ------
    NotHere
        There is no such command, or it failed or did not end in time; the reason is in its text.
    """
    if shutil.which(command[0]) is None:
        raise NotHere(f"no {command[0]}")
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise NotHere(f"{' '.join(command)} did not answer within {timeout_s:g} s") from None
    except OSError as error:
        raise NotHere(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        raise NotHere(f"{command[0]} fails: {_reason(done)}")
    return done.stdout + (done.stderr if errors else "")


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return the first line of what a command complained about, without its own name."""
    lines = [*done.stderr.strip().splitlines(), f"exit status {done.returncode}"]
    return re.sub(r"^(\w+: )?(error|fatal): ", "", lines[0])[:_LONGEST]


@_once
def version() -> str:
    """Return Slurm's version, such as "22.05.8"; "" where there is no Slurm."""
    try:
        return parsed_version(answer(["scontrol", "--version"]))
    except NotHere:
        return ""


def parsed_version(text: str) -> str:
    """Return the version in what ``scontrol --version`` prints, or ""."""
    found = re.search(r"\d+\.\d+\.\d+", text)
    return found[0] if found else ""


@_once
def configuration() -> dict[str, str]:
    """Return what ``scontrol show config`` prints, by name.

    Raises
    ------
    NotHere
        There is no Slurm, or its controller does not answer.
    """
    lines = answer(["scontrol", "show", "config"]).splitlines()
    pairs = (line.partition("=") for line in lines)
    return {name.strip(): value.strip() for name, mark, value in pairs if mark}


@_once
def mpi_types() -> tuple[str, ...]:
    """Return the names that ``srun --mpi=list`` prints.

    Raises
    ------
    NotHere
        There is no srun.
    """
    # Some versions print the list on standard error.
    names = read_types(answer(["srun", "--mpi=list"], errors=True))
    if not names:
        raise NotHere("no srun --mpi=list")
    return names


def _job_id() -> str:
    number = os.environ.get("SLURM_JOB_ID", "")
    if not number:
        raise NotHere("not in a Slurm job")
    return number


@_once
def job_record() -> dict[str, str]:
    """Return what ``scontrol show job`` prints of this job, by name.

    Raises
    ------
    NotHere
        This is no Slurm job, or its controller does not answer.
    """
    text = answer(["scontrol", "show", "--oneliner", "job", _job_id()])
    return dict(re.findall(r"(?:^| )([\w:/]+)=(.*?)(?= [\w:/*]+=|\s*$)", text, re.MULTILINE))


@_once
def batch_script() -> str:
    """Return the script of this job; "" where it has none (salloc, srun alone).

    Raises
    ------
    NotHere
        This is no Slurm job.
    """
    try:
        return answer(["scontrol", "write", "batch_script", _job_id(), "-"])
    except NotHere:
        _job_id()
        return ""
