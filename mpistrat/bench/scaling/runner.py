"""Do the runs of a suite one after the other, within its time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from mpistrat.bench.results.file import append_point
from mpistrat.bench.results.point import Point
from mpistrat.bench.scaling.batch_job import job_facts, site_name
from mpistrat.bench.scaling.launching import Start
from mpistrat.bench.scaling.one_run import do_run
from mpistrat.bench.scaling.planning import Planned
from mpistrat.bench.scaling.progress import SuiteProgress

__all__ = ["Durations", "run_suite"]

_LARGEST_SHARE = 0.2  # of the suite's time that one run may take: others have to have theirs


class Durations:
    """How long runs took, and from that how long others will take."""

    def __init__(self) -> None:
        self._by_case: dict[str, list[float]] = defaultdict(list)

    def add(self, point: Point) -> None:
        """Take a run into account."""
        self._by_case[point.setup.case].append(point.duration_s)

    def expected_s(self, planned: Planned) -> float:
        """Return the longest time of a run of the same case, of any if there was none, or 0."""
        all_s = [one for times in self._by_case.values() for one in times]
        longest = max(self._by_case.get(planned.setup.case) or all_s or [0.0])
        return min(longest, planned.timeout_s)


def run_suite(
    runs: Sequence[Planned],
    start: Start,
    budget_s: float,
    output: Path,
    progress: SuiteProgress,
) -> list[Point]:
    """Do runs until all are done or the time is over; append each to a file once it has ended.

    A run that would probably not end within the time does not begin, so that a short one may.

    Returns
    -------
    list of Point
        Those that were done; what else was planned did not fit into the time.
    """
    end = time.monotonic() + budget_s
    durations, points = Durations(), []
    job, site = job_facts(), site_name()
    for index, planned in enumerate(runs):
        rest_s = end - time.monotonic()
        if rest_s <= durations.expected_s(planned):
            continue
        progress.begin(planned.setup, _left_s(runs[index:], durations, rest_s))
        timeout_s = min(planned.timeout_s, budget_s * _LARGEST_SHARE)
        found = do_run(planned, start, min(timeout_s, rest_s), output)
        if found.status == "timeout" and rest_s < timeout_s:
            break  # the suite's time is over, not the run's: --resume does it again
        point = found.model_copy(update={"job": job, "site": site})
        append_point(output, point)
        points.append(point)
        durations.add(point)
        left_s = _left_s(runs[index + 1 :], durations, end - time.monotonic())
        progress.end(point, left_s)
    return points


def _left_s(runs: Sequence[Planned], durations: Durations, rest_s: float) -> float:
    return max(0.0, min(sum(map(durations.expected_s, runs)), rest_s))
