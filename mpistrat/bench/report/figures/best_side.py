"""Which side is the fastest, by size and ranks: a map with the answer written into each cell."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.patches import Rectangle

from mpistrat.bench.report.analysis.measurements import Measurement, groups
from mpistrat.bench.report.figures.by_size import families, title_of
from mpistrat.bench.report.figures.style import Look, new_figure
from mpistrat.bench.report.section import Figure, Table
from mpistrat.bench.report.units import format_layout, format_size, format_time, plain

__all__ = ["Winner", "best_side", "maps", "winner"]

_HEADERS = ("ranks", "nodes", "size", "fastest", "time (median)", "next", "faster than the next")
_MOST_COLUMNS, _MOST_ROWS = 10, 16
_MOST_ITEM_BYTES = 16


@dataclass(frozen=True)
class Winner:
    """The fastest side of one size and layout.

    Attributes
    ----------
    first
        The fastest.
    second
        The next; None if nothing else was measured.
    """

    first: Measurement
    second: Measurement | None

    @property
    def gain(self) -> float:
        """How many times faster it is than the next; 1 without one."""
        return self.second.time.median / self.first.time.median if self.second else 1.0

    @property
    def is_clear(self) -> bool:
        """Whether the intervals of the two do not overlap."""
        return self.second is not None and not self.first.time.overlaps(self.second.time)


def winner(sides: Sequence[Measurement]) -> Winner:
    """Return the fastest of the sides of one size and layout, by medians."""
    first, *others = sorted(sides, key=lambda m: m.time.median)
    return Winner(first, others[0] if others else None)


def maps(measurements: Sequence[Measurement]) -> list[list[list[Winner]]]:
    """Return the winners of each operation: a list for each layout, in order of sizes."""
    found: dict[Any, list[list[Winner]]] = {}
    for family in families([m for m in measurements if m.get("kind") != "bound"]):
        by_size = groups(family, _size)
        row = [winner(sides) for sides in by_size.values()]
        row.sort(key=lambda one: int(one.first.get("bytes")))
        if any(one.second for one in row):
            found.setdefault(_operation(family[0]), []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: (row[0].first.ranks, row[0].first.nodes))
    return list(found.values())


def best_side(rows: Sequence[Sequence[Winner]], looks: Mapping[str, Look], name: str) -> Figure:
    """Draw a map: the rows are layouts, the columns sizes, the colours sides."""
    sizes = _sizes(rows)
    shown = rows[-_MOST_ROWS:]
    drawing, (axes,) = new_figure(9.6, 1.3 + 0.72 * len(shown))
    for place, row in enumerate(shown):
        for one in row:
            size = _size(one.first)
            if size in sizes:
                _cell(axes, (sizes.index(size), place), one, looks[one.first.side])
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    axes.set_ylim(-0.5, len(shown) - 0.5)
    axes.set_xticks(range(len(sizes)), sizes)
    layouts = [(row[0].first.ranks, row[0].first.nodes) for row in shown]
    axes.set_yticks(range(len(shown)), [format_layout(*one) for one in layouts])
    axes.set_xlabel("size")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    operation = title_of([rows[0][0].first]).split(", ")[0]
    title = f"Fastest side of {operation}, {rows[0][0].first.get('dtype', '')}"
    caption = (
        "The fastest side by median, its time, and how many times faster it is than the next; in"
        " brackets where the intervals of the two overlap, so that the difference may be noise."
    )
    table = Table(title, _HEADERS, [_row(one) for row in rows for one in row])
    return Figure(name, title, _alt(rows, title), caption, drawing, table)


def _operation(m: Measurement) -> tuple[str, ...]:
    names = ("op", "dtype", "reduction", "in_place", "registered", "shared")
    return tuple(str(m.get(name)) for name in names)


def _sizes(rows: Sequence[Sequence[Winner]]) -> list[str]:
    """Return the sizes with the most cells, ascending, no more than there is room for."""
    counted = groups((one.first for row in rows for one in row), _size)
    kept = sorted(counted, key=lambda size: -len(counted[size]))[:_MOST_COLUMNS]
    return sorted(kept, key=lambda size: int(counted[size][0].get("bytes")))


def _size(m: Measurement) -> str:
    """Return a size without what was rounded down so that all ranks have equal pieces."""
    nbytes = int(m.get("bytes"))
    nominal = 1 << (nbytes - 1).bit_length()
    is_rounded = nominal - nbytes < min(_MOST_ITEM_BYTES * m.ranks, nominal / 8)
    return format_size(nominal if is_rounded else nbytes)


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
