"""Write the report of ``mpistrat doctor --lint`` to standard output, or to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from mpistrat.doctor.lint.examining import Examined
from mpistrat.doctor.lint.report import as_json, print_report
from mpistrat.system.files.atomic_files import replace_whole
from mpistrat.system.program_end import standard_output

__all__ = ["show"]

_STANDARD_OUTPUT = "-"


def show(examined: Sequence[Examined], json: str | None) -> None:
    """Report on files and folders. **Local.**

    Parameters
    ----------
    examined
        What was found in them.
    json
        A file for JSON, ``"-"`` for JSON in place of the text, or None.

    Raises
    ------
    OSError
        The report cannot be written.
    """
    if json != _STANDARD_OUTPUT:
        standard_output.show(_text(examined))
    if json == _STANDARD_OUTPUT:
        standard_output.show(as_json(examined))
    elif json is not None:
        replace_whole(Path(json), as_json(examined).encode())


def _text(examined: Sequence[Examined]) -> str:
    """Return the report without the spaces with which rich fills lines up."""
    console = Console(highlight=False)
    with console.capture() as captured:
        print_report(examined, console)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
