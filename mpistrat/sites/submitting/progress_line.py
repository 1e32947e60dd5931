"""Show a job's state in one line that is redrawn, below what the job prints."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from mpistrat.sites.submitting.job_state import Record

__all__ = ["ProgressLine", "described"]


class ProgressLine:
    """The line of one job; a context manager.

    Where the output is no terminal, changes of state are lines of the error output.

    Parameters
    ----------
    job
        Number of the job.
    """

    def __init__(self, job: str) -> None:
        self._job, self._last = job, ""
        console = Console(highlight=False, soft_wrap=True)
        self._is_live = console.is_terminal
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[times]}", markup=False),
            console=console,
            transient=True,
            disable=not self._is_live,
        )
        self._task = self._progress.add_task(f"job {job}", total=None, times="")

    def __enter__(self) -> ProgressLine:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, records: Sequence[Record]) -> None:
        """Show the state of the job, or of the jobs of an array."""
        text = f"job {self._job}: {described(records)}"
        if any(_never_starts(record) for record in records):
            text += f"; it never starts: `scancel {self._job}` ends it"
        if text != self._last and not self._is_live:
            print(text, file=sys.stderr, flush=True)
        self._last = text
        run_s = max(record.run_s for record in records)
        limit_s = records[0].limit_s
        times = f"{_clock(run_s)} of {_clock(limit_s)}" if limit_s else _clock(run_s)
        self._progress.update(
            self._task, description=text, completed=run_s, total=limit_s, times=times
        )

    def out(self, line: str) -> None:
        """Write a line of the job's output."""
        if self._is_live:
            self._progress.console.out(line, highlight=False)
        else:
            print(line, flush=True)


def described(records: Sequence[Record]) -> str:
    """Return the state of a job, with where it is or why it waits; of an array, how many are."""
    if len(records) > 1:
        counts: Counter[str] = Counter()
        for record in records:
            counts[record.state] += _jobs(record.index)
        return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    (record,) = records
    jobs = _jobs(record.index)
    count = f"{jobs} " if jobs > 1 else ""
    where = f" on {record.nodes}" if record.nodes else ""
    why = f" ({record.reason})" if record.reason else ""
    again = f", started again {record.restarts} x" if record.restarts else ""
    return f"{count}{record.state}{where}{why}{again}"


def _jobs(index: str) -> int:
    """Return how many jobs of an array one record is for: those that wait share ``2-9%2``."""
    found = re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?", index.partition("%")[0])
    ranges = (range(int(a), int(b or a) + 1, int(step or 1)) for a, b, step in found)
    return sum(map(len, ranges)) or 1


def _never_starts(record: Record) -> bool:
    return record.state == "PENDING" and record.reason == "DependencyNeverSatisfied"


def _clock(duration_s: int) -> str:
    return f"{duration_s // 3600}:{duration_s // 60 % 60:02}:{duration_s % 60:02}"
