"""Write what the lint has found: as text, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import mpistrat
from mpistrat.doctor.lint.examining import Examined
from mpistrat.doctor.lint.finding import Finding, Outcome
from mpistrat.doctor.report.words import counted, visible

__all__ = ["as_json", "exit_code", "print_report"]

PAGE = "docs/from-horovod.md"
_STYLES = {Outcome.SILENT: "bold red", Outcome.HANGS: "bold red", Outcome.FAILS: "bold yellow"}
_INDENT, _NAME_WIDTH = 4, 8


def exit_code(examined: Sequence[Examined]) -> int:
    """Return 0 where nothing was found, 1 for findings, 2 where a file could not be read."""
    if any(one.error for one in examined):
        return 2
    return 1 if any(one.findings for one in examined) else 0


def as_json(examined: Sequence[Examined]) -> str:
    """Return one JSON object: the files, and what was found in them."""
    content = {
        "mpistrat": mpistrat.__version__,
        "exit_code": exit_code(examined),
        "files": [
            {
                "file": one.file,
                "uses_horovod": one.uses_horovod,
                "keras": 2 if one.is_legacy else 3,
                "error": one.error,
            }
            for one in examined
        ],
        "findings": [
            asdict(found) | {"outcome": found.outcome.value, "see": _see(found)}
            for one in examined
            for found in one.findings
        ],
    }
    return json.dumps(content, indent=2) + "\n"


def print_report(examined: Sequence[Examined], console: Console) -> None:
    """Print each finding, and a line that sums them up."""
    for one in examined:
        if one.error:
            console.print(Text(visible(f"{one.file}: {one.error}"), "bold red"), soft_wrap=True)
        for found in one.findings:
            console.print(_title(found), soft_wrap=True)
            console.print(_explanation(found))
            console.print()
    console.print(Text("; ".join(_sums(examined)), "bold"), soft_wrap=True)


def _title(found: Finding) -> Text:
    place = f"{found.file}:{found.line}:{found.column}: "
    outcome = Text(found.outcome.value, _STYLES[found.outcome])
    return Text(visible(place)) + outcome + Text(visible(f": {found.what} [{found.rule}]"))


def _explanation(found: Finding) -> Padding:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(width=_NAME_WIDTH, no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in (
        ("happens", found.happens),
        ("instead", found.instead),
        ("see", _see(found)),
    ):
        table.add_row(Text(name, "dim"), Text(text))
    return Padding(table, (0, 0, 0, _INDENT))


def _see(found: Finding) -> str:
    return f"{PAGE}#{found.rule}"


def _sums(examined: Sequence[Examined]) -> Iterator[str]:
    outcomes = [found.outcome for one in examined for found in one.findings]
    kinds = [f"{outcomes.count(one)} {one.value}" for one in Outcome if one in outcomes]
    told = f" ({', '.join(kinds)})" if kinds else ""
    unread = sum(bool(one.error) for one in examined)
    yield f"{counted(len(outcomes), 'finding')} in {counted(len(examined) - unread, 'file')}{told}"
    if unread:
        yield f"{unread} could not be read"
    if legacy := sum(one.is_legacy for one in examined):
        yield f"{counted(legacy, 'file')} for Keras 2 (TF_USE_LEGACY_KERAS), which has fewer traps"
    if without := sum(not (one.uses_horovod or one.error) for one in examined):
        yield f"{counted(without, 'file')} without Horovod for TensorFlow"
