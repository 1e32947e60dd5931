"""Print the known sites as a table."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table

from mpistrat.sites.lookup import KnownSite, known, user_folder
from mpistrat.sites.schema import Site

__all__ = ["print_sites"]

_WIDTH = 120  # where the output is no terminal


def print_sites() -> None:
    """Print a row for each site, and what is wrong with files that cannot be read."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("site", "machine", "scheduler", "launcher", "GPUs", "newest source"):
        table.add_column(heading, justify="right" if heading == "GPUs" else "left")
    found = known()
    for one in found:
        if one.site is not None:
            table.add_row(one.name, *_row(one, one.site))
    console.print(table)
    for one in found:
        if one.site is None:
            print(f"{one.name}: {one.problem}", file=sys.stderr)
    print(f"Your own files go into {user_folder()}.")


def _row(one: KnownSite, site: Site) -> tuple[str, ...]:
    gpus = site.node.gpus
    dates = [source.date for source in site.sources.values() if source.date]
    newest = str(max(dates)) if dates else "undated"
    return (
        f"{site.title}{' (your file)' if one.is_own else ''}",
        {"slurm": "Slurm", "pbs": "PBS Pro"}[site.scheduler],
        site.launcher.command.value,
        str(gpus.value) if gpus else "",
        newest,
    )
