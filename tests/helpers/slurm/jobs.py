"""`Job`: a batch job, its state, its output, and waits for it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from helpers.slurm.programs import SlurmError
from mpistrat.system.waiting import wait_until
from mpistrat.testing.placement import slower

__all__ = ["ENDED", "Job"]

ENDED = ("CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "PREEMPTED", "TIMEOUT")
"""The states in which a job stays."""


class _Run(Protocol):
    def __call__(
        self, command: list[str], *, is_to_succeed: bool = True
    ) -> subprocess.CompletedProcess[str]: ...


class Job:
    """A job of a `SlurmCluster`, by its number.

    Attributes
    ----------
    number
        As Slurm prints it, ``7``, or ``7_2`` for a task of an array.
    """

    def __init__(self, run: _Run, number: str) -> None:
        self._run = run
        self.number = number

    def fields(self) -> dict[str, str]:
        """Return what ``scontrol show job`` says, such as JobState and Restarts."""
        command = ["scontrol", "show", "job", "--oneliner", self.number]
        text = self._run(command).stdout.splitlines()[0]
        # A value ends before the next name; some hold spaces.
        found = re.findall(r"(\S+?)=(.*?)(?= [A-Za-z:/]+=|$)", text.strip())
        return {name: value.strip() for name, value in found}

    def state(self) -> str:
        """Return the job's state, such as PENDING or COMPLETED."""
        return self.fields()["JobState"]

    def restarts(self) -> int:
        """Return how many times the job was started again."""
        return int(self.fields()["Restarts"])

    def wait(self, timeout_s: float = 60.0, states: Iterable[str] = ENDED) -> str:
        """Wait until the job is in one of `states`, by default at its end, and return which.

        Raises
        ------
        SlurmError
            It was not in time; with its fields and output.
        """
        wanted, last = tuple(states), [""]

        def is_there() -> bool:
            last[0] = self.state()
            return last[0] in wanted

        if not wait_until(is_there, timeout_s * slower(), 0.1):
            raise SlurmError(
                f"job {self.number} is {last[0]} after {timeout_s:g} s, expected one of"
                f" {', '.join(wanted)}: {self.fields()}\nIts output:\n{self.output()}"
            )
        return last[0]

    def completed(self, timeout_s: float = 60.0) -> str:
        """Wait for the job's end, and return its output.

        Raises
        ------
        SlurmError
            It failed, or did not end in time; with its output.
        """
        state = self.wait(timeout_s)
        if state != "COMPLETED":
            raise SlurmError(f"job {self.number} ended as {state}; its output:\n{self.output()}")
        return self.output()

    def output(self) -> str:
        """Return what the job has printed so far; '' if it has not started."""
        file = self.output_file()
        return file.read_text(errors="replace") if file.exists() else ""

    def output_file(self) -> Path:
        """Return the file of the job's output."""
        return Path(self.fields()["StdOut"])

    def signal(self, name: str, *options: str) -> None:
        """Send a signal to the ranks; with ``--batch`` to the script, ``--full`` to both."""
        self._run(["scancel", f"--signal={name}", *options, self.number])

    def cancel(self) -> None:
        """Cancel the job."""
        self._run(["scancel", self.number])
