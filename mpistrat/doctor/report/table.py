"""Print the results as a table, and each problem with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import mpistrat
from mpistrat.doctor.check import Problem, Result, Status
from mpistrat.doctor.examination import Examination
from mpistrat.doctor.report.words import counted, started_by, summary, visible

__all__ = ["print_table"]

# Words tell the statuses apart where there are no colours.
_SHOWN = {
    Status.OK: Text("ok", "green"),
    Status.WARNING: Text("WARNING", "bold yellow"),
    Status.FAILURE: Text("FAILURE", "bold red"),
    Status.NOT_HERE: Text("not here", "dim"),
}
_STATUS_WIDTH, _INDENT = 8, 2
_NAME_WIDTH = 10  # of the longest name in the list of problems


def print_table(examination: Examination, console: Console) -> None:
    """Print the whole report."""
    _header(examination, console)
    console.print(_table(examination))
    for line in _not_here(examination):
        console.print(line)
    for result in examination.results:
        for problem in result.problems:
            console.print()
            console.print(_problem(result, problem))
    console.print()
    console.print(Text(summary(examination), "bold"), highlight=False)


def _header(examination: Examination, console: Console) -> None:
    job = examination.job
    nodes = list(job.nodes)
    names = ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
    ranks = counted(job.size, "rank")
    if job.launcher.size > job.size:
        ranks = f"1 of {job.launcher.size} ranks"
    where = f"{ranks} on {counted(len(nodes), 'node')} ({names})"
    title = Text(f"mpistrat doctor {mpistrat.__version__}", "bold")
    console.print(title + Text(f": {where}, {started_by(job)}", "not bold"), highlight=False)
    console.print()


def _table(examination: Examination) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), expand=False)
    table.add_column(width=_STATUS_WIDTH + _INDENT, no_wrap=True)
    table.add_column(no_wrap=True, min_width=16)
    table.add_column(overflow="fold")
    area, left = "", (0, 0, 0, _INDENT)
    for result in examination.results:
        if result.status is Status.NOT_HERE:
            continue
        if result.area != area:
            area = result.area
            table.add_row(Text(area, "bold"), "", "")
        value = Text(visible(result.value))
        table.add_row(Padding(_SHOWN[result.status], left), Text(result.title), value)
    return table


def _not_here(examination: Examination) -> Iterator[Table]:
    """Yield the checks that have nothing to look at, a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for result in examination.results:
        if result.status is Status.NOT_HERE:
            reasons.setdefault(result.value, []).append(result.title)
    if not reasons:
        return
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(overflow="fold")
    table.add_row(Text("not here", "bold"))
    for reason, titles in reasons.items():
        line = Text(f"{visible(reason)}: ") + Text(", ".join(titles), "dim")
        table.add_row(Padding(line, (0, 0, 0, _INDENT)))
    yield table


def _problem(result: Result, problem: Problem) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(width=_NAME_WIDTH, no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(_SHOWN[problem.status], Text(f"{result.area}: {result.title}", "bold"))
    for name, text in (
        ("found", problem.got),
        ("expected", problem.expected),
        ("do", problem.fix),
        ("type", problem.command),
        ("see", result.source),
    ):
        if text:
            style = "cyan" if name == "type" else ""
            table.add_row(Text(f"  {name}", "dim"), Text(visible(text), style))
    return table
