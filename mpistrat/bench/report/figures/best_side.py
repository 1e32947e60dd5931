"""Draw a map of the fastest side by size and ranks, with the answer in each cell."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.patches import Rectangle

from mpistrat.bench.report.analysis.measurements import Measurement, groups
from mpistrat.bench.report.analysis.operations import name_parts, title_of
from mpistrat.bench.report.analysis.winners import Winner, nominal_size
from mpistrat.bench.report.figures.style import Look, new_figure
from mpistrat.bench.report.file_names import named
from mpistrat.bench.report.section import Figure, Table
from mpistrat.bench.report.units import format_layout, format_size, format_time, plain

__all__ = ["best_side"]

_HEADERS = (
    *("ranks", "nodes", "message size", "fastest", "time (median)", "next"),
    "factor over the next",
)
_MOST_COLUMNS, _MOST_ROWS = 10, 16


def best_side(rows: Sequence[Sequence[Winner]], looks: Mapping[str, Look]) -> Figure:
    """Draw a map: the rows are layouts, the columns sizes, the colours sides."""
    sizes = _sizes(rows)
    shown = rows[-_MOST_ROWS:]
    drawing, (axes,) = new_figure(9.6, 1.3 + 0.72 * len(shown))
    for place, row in enumerate(shown):
        for one in row:
            size = nominal_size(one.first)
            if size in sizes:
                _cell(axes, (sizes.index(size), place), one, looks[one.first.side])
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    axes.set_ylim(-0.5, len(shown) - 0.5)
    axes.set_xticks(range(len(sizes)), sizes)
    layouts = [(row[0].first.ranks, row[0].first.nodes) for row in shown]
    axes.set_yticks(range(len(shown)), [format_layout(*one) for one in layouts])
    axes.set_xlabel("message size")
    axes.set_title("Fastest side, its time, and 1.2×: factor over the next; (1.2×): may be noise")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    operation = title_of([rows[0][0].first]).split(", ")[0]
    title = f"Fastest side of {operation}, {rows[0][0].first.get('dtype', '')}"
    caption = (
        "The fastest side by median, its time, and the factor over the next: 1.2× where the next"
        " takes 1.2 times as long; in brackets where the intervals of the two overlap, so that the"
        " difference may be noise."
    )
    table = Table(title, _HEADERS, [_row(one) for row in rows for one in row])
    name = named("fastest", *_name(rows[0][0].first))
    return Figure(name, title, _alt(rows, title), caption, drawing, table)


def _name(m: Measurement) -> list[object]:
    """Return the parts of a name without ranks, which the map has all of."""
    return [one for one in name_parts(m) if "-rank" not in str(one) and "-node" not in str(one)]


def _sizes(rows: Sequence[Sequence[Winner]]) -> list[str]:
    """Return the sizes with the most cells, ascending, no more than there is room for."""
    counted = groups((one.first for row in rows for one in row), nominal_size)
    kept = sorted(counted, key=lambda size: -len(counted[size]))[:_MOST_COLUMNS]
    return sorted(kept, key=lambda size: int(counted[size][0].get("bytes")))


def _cell(axes: Any, place: tuple[int, int], one: Winner, look: Look) -> None:
    x, y = place
    corner = (x - 0.5, y - 0.5)
    cell = Rectangle(corner, 1, 1, facecolor=look.colour, alpha=0.28, edgecolor="none")
    frame = Rectangle(corner, 1, 1, fill=False, edgecolor="white", linewidth=2)
    axes.add_patch(cell)
    axes.add_patch(frame)
    name = textwrap.wrap(plain(one.first.side, 40), 14, max_lines=3, placeholder="…")
    gain = f"{one.gain:.1f}×" if one.is_clear else f"({one.gain:.1f}×)"
    lines = [*name, format_time(one.first.time.median)]
    lines += [gain] if one.second else []
    axes.text(x, y, "\n".join(lines), ha="center", va="center", fontsize=7.5, linespacing=1.15)


def _row(one: Winner) -> list[str]:
    first = one.first
    overlap = "" if one.is_clear or one.second is None else " (intervals overlap)"
    return [
        str(first.ranks),
        str(first.nodes),
        format_size(int(first.get("bytes"))),
        plain(first.side),
        format_time(first.time.median),
        plain(one.second.side) if one.second else "",
        f"{one.gain:.2f}×{overlap}" if one.second else "",
    ]


def _alt(rows: Sequence[Sequence[Winner]], title: str) -> str:
    every = [one.first.side for row in rows for one in row]
    counts = sorted(((every.count(side), side) for side in set(every)), reverse=True)
    won = ", ".join(f"{plain(side)} in {count}" for count, side in counts)
    return f"A map of sizes by ranks. {title}: of {len(every)} cells, {won}."
