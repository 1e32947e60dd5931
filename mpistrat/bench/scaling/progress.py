"""Show how far a suite is: a bar with the time left in a terminal, else a line a run."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from mpistrat.bench.results.point import Point, Setup

__all__ = ["SuiteProgress"]


class SuiteProgress:
    """The progress of a suite; a context manager that removes the bar at its end.

    Parameters
    ----------
    console
        Where it is shown.
    total
        Number of runs.
    """

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        self._bar = Progress(
            *columns,
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=total, left="")

    def __enter__(self) -> SuiteProgress:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the bar."""
        self._bar.stop()

    def begin(self, setup: Setup, left_s: float) -> None:
        """Say which run begins, and about how many seconds all that are left take."""
        left = f"about {_minutes(left_s)} left" if left_s else ""
        self._bar.update(self._task, description=setup.title, left=left)

    def end(self, point: Point, left_s: float) -> None:
        """Say how a run ended."""
        self._bar.advance(self._task)
        done, total = self._bar.tasks[0].completed, self._bar.tasks[0].total
        line = f"[{done:.0f}/{total:.0f}] {point.setup.title}: {point.status}"
        line += f" in {point.duration_s:.1f} s"
        if not self._console.is_terminal and left_s:
            line += f", about {_minutes(left_s)} left"
        self._console.print(line, markup=False, soft_wrap=True)
        if point.message:
            self._console.print(f"    {_last_words(point)}", markup=False, soft_wrap=True)


def _last_words(point: Point) -> str:
    """Return the last line of a message that has letters, without control characters."""
    lines = [line for line in point.message.splitlines() if any(map(str.isalpha, line))]
    return "".join(one if one.isprintable() else " " for one in (lines or [""])[-1])


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
