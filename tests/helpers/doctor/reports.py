"""Run ``mpistrat doctor`` with planted faults, and read its report."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.doctor import planted
from mpistrat.testing.launcher import run_job

__all__ = ["HEALTHY", "Report", "examine", "planted_command"]

HEALTHY = {"OMP_NUM_THREADS": "1"}
"""The environment of a job without faults: one thread a rank, as there may be a core for each."""

Fault = tuple[int | None, str, Any]


@dataclass(frozen=True)
class Report:
    """A report: its exit status, what was printed, and its JSON."""

    returncode: int
    text: str
    content: Mapping[str, Any]

    @classmethod
    def read(cls, returncode: int, text: str, file: Path) -> Report:
        """Return the report whose JSON is in a file."""
        return cls(returncode, text, json.loads(file.read_text()) if file.exists() else {})

    def status(self, name: str) -> str:
        """Return the status of a check."""
        return str(self._check(name)["status"])

    def value(self, name: str) -> str:
        """Return the value of a check."""
        return str(self._check(name)["value"])

    def says(self, name: str, *words: str) -> bool:
        """Tell whether a check has a problem with these words."""
        problems = self._check(name)["problems"]
        return any(
            all(word in " ".join(map(str, problem.values())) for word in words)
            for problem in problems
        )

    def faulty(self) -> set[str]:
        """Return the checks with problems.

        Other processes of the machine may slow a rank down while the tests run, which is no
        mistake of the report: that check is left out.
        """
        checks = self.content["checks"]
        return {check["name"] for check in checks if check["problems"]} - {"ranks.slow_rank"}

    def _check(self, name: str) -> Mapping[str, Any]:
        return next(check for check in self.content["checks"] if check["name"] == name)


def planted_command(faults: Sequence[Fault], *options: str) -> list[str]:
    """Return what stands after ``python`` to run doctor with faults."""
    return [planted.__file__, json.dumps(list(faults)), *options]


def examine(
    faults: Sequence[Fault],
    *options: str,
    ranks: int = 2,
    environment: Mapping[str, str] | None = None,
) -> Report:
    """Return the report of a job under mpirun."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = planted_command(faults, "--json", str(file), *options)
        result = run_job(command, ranks, 60, env=HEALTHY | dict(environment or {}))
        return Report.read(result.returncode, result.output, file)
