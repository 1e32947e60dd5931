"""`Examination`: all that a report says of a job."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpistrat.doctor.check import Result, Status
from mpistrat.doctor.job.job import Job
from mpistrat.doctor.judging import worst

__all__ = ["Examination"]

_EXIT_CODES = {Status.WARNING: 1, Status.FAILURE: 2}


@dataclass(frozen=True)
class Examination:
    """The results of all checks of a job.

    Attributes
    ----------
    job
        The ranks that were examined.
    results
        A result for each check, in the order of the report.
    corrections
        Values of the site's file that the machine contradicts, by their keys.
    duration_s
        Time of the whole command, from its start on rank 0.
    date
        When it ended.
    """

    job: Job
    results: Sequence[Result]
    corrections: Mapping[str, Any] = field(default_factory=dict)
    duration_s: float = 0.0
    date: dt.datetime = field(default_factory=lambda: dt.datetime.now().astimezone())

    @property
    def exit_code(self) -> int:
        """0 if all is well, 1 for warnings, 2 for failures."""
        return _EXIT_CODES.get(worst(self.results), 0)

    def count(self, status: Status) -> int:
        """Return how many checks have this status."""
        return sum(result.status is status for result in self.results)
