"""``mpistrat doctor --lint FILE ...``: read programs, print what Horovod does wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from mpistrat.cluster.launch import expected_rank
from mpistrat.doctor.lint.examining import Examined, examine
from mpistrat.doctor.lint.report import as_json, exit_code, print_report
from mpistrat.system.atomic_files import replace_whole

__all__ = ["lint"]

_STANDARD_OUTPUT = "-"


def lint(names: Sequence[str], json: str | None) -> int:
    """Report on files and folders; under a launcher, on rank 0. Return the exit status.

    Parameters
    ----------
    names
        The files, and folders whose Python files are meant.
    json
        A file for JSON, ``"-"`` for JSON in place of the text, or None.
    """
    examined = examine(names)
    if (expected_rank() or ("", 0))[1] != 0:
        return exit_code(examined)
    if json != _STANDARD_OUTPUT:
        _print(examined)
    if json == _STANDARD_OUTPUT:
        print(as_json(examined), end="")
    elif json is not None:
        replace_whole(Path(json), as_json(examined).encode())
    return exit_code(examined)


def _print(examined: Sequence[Examined]) -> None:
    """Print the report without the spaces with which rich fills lines up."""
    console = Console(highlight=False)
    with console.capture() as captured:
        print_report(examined, console)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
