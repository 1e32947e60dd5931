"""Print a report's summary, or a comparison, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from mpistrat.bench.report.analysis.change import LEAST_REPEATS, Change, name_of
from mpistrat.bench.report.analysis.comparison import Comparison
from mpistrat.bench.report.analysis.intervals import Interval
from mpistrat.bench.report.section import Table
from mpistrat.bench.report.units import counted, format_interval, format_time

__all__ = ["print_comparison", "print_summary"]

_MOST_NAMES = 20


def print_summary(console: Console, statements: Sequence[str], failures: Table | None) -> None:
    """Print the statements, a line each, and what failed."""
    for statement in statements:
        console.print(f"- {escape(statement)}", soft_wrap=True)
    if failures is not None:
        console.print("", "Failed:", sep="\n")
        for what, _, status, _, message in failures.rows:
            console.print(f"- {escape(what)}: {status}: {escape(message)}", soft_wrap=True)


def print_comparison(console: Console, found: Comparison, threshold: float) -> None:
    """Print what became slower and faster, and what cannot be compared."""
    _names(console, "the files are of different machines or MPI libraries", found.machines)
    _changes(console, "slower", found.slower)
    _changes(console, "faster", found.faster)
    _changes(console, "peers and bounds (no regression)", found.peers)
    _names(console, "newly failing", found.failed)
    _names(console, "only in the old file", found.only_old)
    _names(console, "only in the new file", found.only_new)
    _names(console, "record left out", found.left_out)
    _unjudged(console, found.unjudged)
    fine = "no regression" if found.is_judged else "NOT JUDGED"
    verdict = "REGRESSION" if found.is_regression else fine
    console.print(
        f"{verdict}: {len(found.slower)} slower, {len(found.faster)} faster, {found.equal} within"
        f" noise or {threshold:.3g} %, {len(found.failed)} newly failing",
        soft_wrap=True,
    )


def _changes(console: Console, word: str, changes: Sequence[Change]) -> None:
    if not changes:
        return
    table = RichTable(word, "old", "new", "new / old", box=None, pad_edge=False)
    table.header_style = "none"  # no escape codes in files
    for one in changes:
        cells = [_cell(side) for side in (one.old.time, one.new.time)]
        table.add_row(escape(name_of(one.new)), *cells, f"{one.ratio:.2f}×")
    console.print(table, "", sep="\n")


def _unjudged(console: Console, count: int) -> None:
    if count:
        has = "has" if count == 1 else "have"
        console.print(
            f"{counted(count, 'measurement')} {has} too few repeats to judge; run both with"
            f" --repeats {LEAST_REPEATS}",
            soft_wrap=True,
        )


def _cell(time: Interval) -> str:
    return f"{format_time(time.median)} ({format_interval(time)})"


def _names(console: Console, word: str, names: Sequence[str]) -> None:
    for name in names[:_MOST_NAMES]:
        console.print(f"{word}: {escape(name)}", soft_wrap=True)
    if len(names) > _MOST_NAMES:
        console.print(f"{word}: and {len(names) - _MOST_NAMES} more")
