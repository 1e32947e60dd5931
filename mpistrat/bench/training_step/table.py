"""Print the figures of a step as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from mpistrat.bench.training_step.figures import Figures, Traffic

__all__ = ["print_figures"]

_HEADERS = ("step ms", "min", "max", "compute ms", "exposed ms", "overlapped", "busbw")

_LEGEND = (
    "Times are those of the slowest rank, medians over rounds in which all sides took turns."
    " exposed: step - compute, round by round; overlapped: the share of the library's exposed time"
    " in sequence that is hidden; busbw in GB/s of the exposed time, in sequence; efficiency:"
    " compute / step; 'over X': how many times faster a step is than X's."
)


def print_figures(
    console: Console, title: str, figures: Sequence[Figures], traffic: Traffic
) -> None:
    """Print a line for each side, and what the columns are."""
    bases = list(dict.fromkeys(base for one in figures for base in one.bases))
    table = Table(box=None, pad_edge=False)
    table.header_style = "none"  # no escape codes: mpirun may write to a file
    table.add_column("side", no_wrap=True)
    for header in (*_HEADERS, "efficiency", *(f"over {base}" for base in bases)):
        table.add_column(header, justify="right", no_wrap=True)
    for one in figures:
        table.add_row(*_cells(one, traffic, bases))
    console.print(title, table, "", _LEGEND, sep="\n", soft_wrap=True)


def _cells(one: Figures, traffic: Traffic, bases: Sequence[str]) -> list[str]:
    timing, busbw = one.timing, one.busbw_gbps(traffic)
    times = (timing.median_us, timing.min_us, timing.max_us, one.alone.median_us)
    exposed = f"{one.exposed.median_us / 1e3:.2f}" if one.side.library else ""
    return [
        one.side.side.label.text,
        *(f"{time_us / 1e3:.2f}" for time_us in times),
        exposed,
        "" if one.overlapped is None else f"{one.overlapped:.0%}",
        "" if busbw is None else f"{busbw:.3f}",
        f"{one.efficiency:.0%}",
        *(f"{timing.speedup(one.bases[b]):.2f}x" if b in one.bases else "" for b in bases),
    ]
