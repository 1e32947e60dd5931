"""Print what a build needs and whether it is here, and where its wheel is."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpistrat.horovod_build.requirements.examination import Row
from mpistrat.horovod_build.wheel_cache import CachedWheel

__all__ = ["print_report"]

_WIDTH = 120  # where the output is no terminal


def print_report(rows: Sequence[Row], place: CachedWheel | None, installed: str | None) -> None:
    """Print a row for each requirement, then what is known of wheel and installation.

    Parameters
    ----------
    place
        The wheel's place; None where something is missing.
    installed
        The address that the installed Horovod came from, "" if unknown; None if there is none.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("needed")
    table.add_column("here", overflow="fold")
    for row in rows:
        said = Text(row.found) if row.found else Text(f"missing: {row.problem}", style="red")
        table.add_row(row.name, said)
    console.print(table)
    for line in (_wheel_line(place), _installed_line(place, installed)):
        console.print(line, markup=False, soft_wrap=True)


def _wheel_line(place: CachedWheel | None) -> str:
    if place is None:
        return "Horovod cannot be built here before that is installed."
    wheel = place.find()
    if wheel is None:
        return "There is no wheel for these in the cache: `mpistrat horovod build` compiles it."
    return f"The wheel for these is in the cache: {wheel}"


def _installed_line(place: CachedWheel | None, installed: str | None) -> str:
    if installed is None:
        return "Horovod is not installed: `mpistrat horovod build` does it."
    wheel = place.find() if place else None
    if wheel is not None and installed == wheel.as_uri():
        return "Horovod is installed, from this wheel."
    origin = installed or "an index"
    return f"Horovod is installed, from {origin}: `mpistrat horovod build` replaces it."
