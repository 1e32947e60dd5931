"""Throughput of parameter servers, by kind of call and number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpistrat.bench.report.analysis.measurements import Measurement, groups
from mpistrat.bench.report.analysis.rates import server_value
from mpistrat.bench.report.figures.style import Look, below, looks_of, new_figure
from mpistrat.bench.report.file_names import named
from mpistrat.bench.report.section import Figure, Table
from mpistrat.bench.report.units import bars_of, format_time, plain

__all__ = ["families", "servers"]

_TITLES = {
    ("rows", "pull"): "Rows pulled",
    ("rows", "push"): "Rows pushed",
    ("dense", "pull"): "Whole table pulled",
    ("schedule", "empty function"): "Empty functions scheduled",
    ("read", ""): "Random rows read",
    ("add", ""): "Random rows added to",
    ("all", ""): "Whole table read",
}


_MOST_AXES = 4
_COPIES_NOTHING = ", view"


def families(measurements: Sequence[Measurement]) -> list[list[Measurement]]:
    """Return the measurements of each table, of the cases ps and rows."""
    chosen = [m for m in measurements if m.case in ("ps", "rows") and m.interval]
    found = groups(chosen, _workload).values()
    return [members for members in found if any(map(_has_bar, members))]


def _has_bar(m: Measurement) -> bool:
    """Tell whether a side moves bytes: a view does not."""
    return not m.side.endswith(_COPIES_NOTHING)


def servers(members: Sequence[Measurement]) -> Figure:
    """Draw axes for each kind of call; groups of bars are numbers of ranks, bars sides."""
    drawn = [m for m in members if _has_bar(m)]
    sides = list(groups(drawn, lambda m: m.side))
    calls = list(groups(drawn, _call).values())[:_MOST_AXES]
    looks = looks_of(sides)
    drawing, all_axes = new_figure(9.6, 3.9, columns=len(calls))
    handles: dict[str, Any] = {}
    for axes, mine in zip(all_axes, calls, strict=True):
        handles |= _draw(axes, mine, looks)
    below(drawing, list(handles.values()), [plain(side) for side in handles], columns=4)
    title = _title(members[0])
    caption = (
        f"Medians; black bars are {bars_of(m.time for m in members)}. More is better, but not"
        " where the unit is a time."
        f"{' A view copies nothing, and has no bar.' if len(drawn) < len(members) else ''}"
    )
    headers = ("call", "side", "ranks", "nodes", "median", "unit", "interval", "time")
    table = Table(title, headers, [_row(m) for m in members])
    return Figure(_name(members[0]), title, _alt(members, title), caption, drawing, table)


def _draw(axes: Any, members: Sequence[Measurement], looks: Mapping[str, Look]) -> dict[str, Any]:
    """Draw the bars of a call; return a handle for each side."""
    sides = list(groups(members, lambda m: m.side))
    layouts = sorted(groups(members, lambda m: (m.ranks, m.nodes)))
    width, handles = min(0.8 / len(sides), 0.4), {}
    for place, side in enumerate(sides):
        mine = [m for m in members if m.side == side]
        offset = width * (place - (len(sides) - 1) / 2)
        where = [layouts.index((m.ranks, m.nodes)) + offset for m in mine]
        handles[side] = _bars(axes, (where, width * 0.9), mine, looks[side])
    axes.set_xticks(range(len(layouts)), [_layout(*one) for one in layouts])
    axes.set_xlim(-0.6, len(layouts) - 0.4)
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("ranks")
    axes.set_title(f"{_call(members[0])},\n{_unit(members[0])}")
    return handles


def _bars(axes: Any, where: tuple[list[float], float], mine: list[Measurement], look: Look) -> Any:
    places, width = where
    spans = [_span(m) for m in mine]
    middle = [span[1] for span in spans]
    ends = [[span[1] - span[0] for span in spans], [span[2] - span[1] for span in spans]]
    axes.errorbar(places, middle, yerr=ends, fmt="none", ecolor="black", capsize=3, lw=1)
    return axes.bar(places, middle, width, **look.bars())


def _span(m: Measurement) -> tuple[float, float, float]:
    value = server_value(m)
    return value.low, value.median, value.high


def _unit(m: Measurement) -> str:
    return plain(m.get("unit", "M rows/s, each rank")).replace("us a ", "µs a ")


def _workload(m: Measurement) -> tuple[str, ...]:
    """Return what makes figures comparable: the table, and for servers the rows of a call."""
    return m.case, str(m.get("table")), str(m.get("rows")) if m.case == "ps" else ""


def _call(m: Measurement) -> str:
    kind = (str(m.get("kind")), str(m.get("name", "")))
    return plain(_TITLES.get(kind, " ".join(kind).strip()), 40)


def _name(m: Measurement) -> str:
    what = "parameter-servers" if m.case == "ps" else "table-on-one-machine"
    table = m.get("table")
    shape = "x".join(map(str, table)) if isinstance(table, (list, tuple)) else ""
    return named(what, shape, f"{m.get('rows')}-rows" if m.case == "ps" else "")


def _title(m: Measurement) -> str:
    what = "Parameter servers" if m.case == "ps" else "Rows of a table on one machine"
    table = m.get("table")
    of_table = f", table of {table[0]:,} × {table[1]}" if isinstance(table, (list, tuple)) else ""
    rows = f", {m.get('rows'):,} rows a call" if m.case == "ps" else ""
    return plain(f"{what}{of_table}{rows}", 120)


def _layout(ranks: int, nodes: int) -> str:
    return str(ranks) if nodes == 1 else f"{ranks} ({nodes} nodes)"


def _row(m: Measurement) -> list[str]:
    low, middle, high = _span(m)
    return [
        _call(m),
        plain(m.side),
        str(m.ranks),
        str(m.nodes),
        f"{middle:.3g}",
        _unit(m),
        f"{low:.3g} to {high:.3g} ({m.time.kind})",
        format_time(m.time.median),
    ]


def _alt(members: Sequence[Measurement], title: str) -> str:
    ends = [
        f"{_call(m)}, {plain(m.side)}: {_span(m)[1]:.3g} {_unit(m)} on {m.ranks} ranks"
        for m in members
    ]
    return f"Bars by ranks. {title}: {'; '.join(ends[:12])}."
