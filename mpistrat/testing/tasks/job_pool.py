"""The pool of jobs that are up while pytest runs; test files of one folder share them."""

from __future__ import annotations

import warnings
from pathlib import Path

from mpistrat.testing.job import MpiJob
from mpistrat.testing.placement import Placement

__all__ = ["Jobs"]

_MOST_RANKS = 6
"""Of all jobs that are up, as of one, two and three ranks; a larger job is up alone."""


class Jobs:
    """Jobs by their size, for the tests of one folder, or of a file that wants to be alone.

    A launch takes 1 to 2 s, and what the tests of a folder import up to 10 s more.
    """

    def __init__(self) -> None:
        self._owner: Path | None = None
        self._jobs: dict[int, MpiJob] = {}  # the one used last is last

    def get(self, place: Placement) -> MpiJob:
        """Return the job for a test, ending those of others, and those there is no room for."""
        self.keep_for(place)
        # Taken out and put back below, so that the dict is in the order of use.
        job = self._jobs.pop(place.ranks, None) or MpiJob(place.ranks)
        while self._jobs and sum(self._jobs) + place.ranks > _MOST_RANKS:
            self._end(next(iter(self._jobs)))
        self._jobs[place.ranks] = job
        return job

    def keep_for(self, following: Placement) -> None:
        """End the jobs unless the next test may use them."""
        owner = following.file if following.is_alone else following.folder
        if owner != self._owner:
            self.close()
        self._owner = owner

    def close(self) -> None:
        """End all jobs."""
        while self._jobs:
            self._end(next(iter(self._jobs)))

    def _end(self, size: int) -> None:
        """End a job, and warn if it did not end well."""
        complaint = self._jobs.pop(size).close()
        if complaint:
            warnings.warn(f"tests of {self._owner}: {complaint}", stacklevel=1)
