"""Latency and bus bandwidth of a collective by size: mpistrat, its peers and the bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from mpistrat.bench.report.analysis.measurements import Measurement, groups, options_of
from mpistrat.bench.report.figures.axes import rate_axis, size_axis, time_axis
from mpistrat.bench.report.figures.style import Look, below, new_figure
from mpistrat.bench.report.section import Figure, Table
from mpistrat.bench.report.units import (
    format_interval,
    format_layout,
    format_size,
    format_time,
    plain,
)

__all__ = ["FAMILIES", "by_size", "families", "single_sizes", "title_of"]

Family: TypeAlias = Sequence[Measurement]

FAMILIES = ("collectives",)
"""The cases whose records are of one operation and one size."""

_HEADERS = ("side", "size", "time (median)", "interval", "bus bandwidth GB/s", "over peers")
_FIRST = ("allreduce", "reduce_scatter", "allgather", "bcast")  # what training uses most


def families(measurements: Sequence[Measurement]) -> list[Family]:
    """Return the measurements of each operation, dtype and layout; the largest jobs come first."""
    chosen = [m for m in measurements if m.case in FAMILIES and m.interval and m.get("bytes")]
    found = groups(chosen, _family_key)
    by_op = groups(found.values(), lambda family: str(family[0].get("op")))
    order: list[tuple[int, int, Family]] = []
    for op, members in by_op.items():
        members.sort(key=lambda family: (-family[0].ranks, -family[0].nodes))
        place = _FIRST.index(op) if op in _FIRST else len(_FIRST)
        order += [(turn, place, family) for turn, family in enumerate(members)]
    order.sort(key=lambda one: one[:2])
    return [family for _, _, family in order]


def title_of(family: Family) -> str:
    """Return what was measured as a line."""
    first = family[0]
    kind = [str(first.get("op")), *([first.get("reduction")] if first.get("reduction") else [])]
    what = [" ".join(kind), str(first.get("dtype", "")), format_layout(first.ranks, first.nodes)]
    flags = [name for name in ("in_place", "registered", "shared") if first.get(name)]
    options = _other_options(first)
    return plain(", ".join([*what, *(flag.replace("_", " ") for flag in flags), *options]), 120)


def by_size(family: Family, looks: Mapping[str, Look], name: str) -> Figure:
    """Draw time and bandwidth of a family by size, with a line for each side."""
    drawing, (times, bandwidths) = new_figure(9.6, 4.1, columns=2)
    handles = []
    for side, members in groups(family, lambda m: m.side).items():
        members.sort(key=lambda m: int(m.get("bytes")))
        handles.append(_lines(times, bandwidths, members, looks[side]))
    sides = [plain(side) for side in groups(family, lambda m: m.side)]
    sizes = [int(m.get("bytes")) for m in family]
    time_axis(times.yaxis, [end for m in family for end in _time(m)])
    times.set_title("Time of a call")
    rates = [end for m in family if m.get("busbw_GBps") for end in _rate(m)]
    rate_axis(bandwidths.yaxis, rates)
    bandwidths.set_title("Bus bandwidth, GB/s")
    for axes in (times, bandwidths):
        size_axis(axes, sizes)
    below(drawing, handles, sides, columns=4)
    title = title_of(family)
    alt = (
        f"Two line charts of {title} by size, {format_size(min(sizes))} to"
        f" {format_size(max(sizes))}: time of a call, and bus bandwidth, of {', '.join(sides)}."
        f" {_largest(family)}"
    )
    return Figure(name, title, alt, _caption(family), drawing, _table(family, title))


def single_sizes(chosen: Sequence[Family]) -> Table | None:
    """Return a table of families of one size, for which a line cannot be drawn."""
    rows = [[title_of(family), *row] for family in chosen for row in _rows(family)]
    headers = ("operation", *_HEADERS)
    return Table("Operations that were measured at one size", headers, rows) if rows else None


def _family_key(m: Measurement) -> tuple[Any, ...]:
    names = ("op", "dtype", "reduction", "in_place", "registered", "shared")
    layout = (m.ranks, m.nodes)
    return *(str(m.get(name)) for name in names), *layout, *_other_options(m)


def _other_options(m: Measurement) -> list[str]:
    """Return the options that a record does not tell in its own words."""
    told = ("--ops", "--bytes", "--dtypes", "--peers", "--backends", "--in-place", "--registered")
    parts = [f"--{one}".strip() for one in options_of(m.point).split("--") if one]
    return [one for one in parts if not one.startswith((*told, "--shared", "--reduction"))]


def _lines(times: Any, bandwidths: Any, members: Family, look: Look) -> Any:
    sizes = [int(m.get("bytes")) for m in members]
    drawn = times.errorbar(sizes, *_spread([_time(m) for m in members]), **look.lines())
    with_rate = [m for m in members if m.get("busbw_GBps")]
    sizes = [int(m.get("bytes")) for m in with_rate]
    bandwidths.errorbar(sizes, *_spread([_rate(m) for m in with_rate]), **look.lines())
    return drawn


def _time(m: Measurement) -> tuple[float, float, float]:
    return m.time.low, m.time.median, m.time.high


def _rate(m: Measurement) -> tuple[float, float, float]:
    """Return the bus bandwidth at the ends of the interval and at the median."""
    rate, time = float(m.get("busbw_GBps")), m.time
    low = max(time.low, time.median * 1e-3)
    return rate * time.median / time.high, rate, rate * time.median / low


def _spread(spans: Sequence[tuple[float, float, float]]) -> tuple[list[float], list[list[float]]]:
    """Return middles, and their distances to the ends, as matplotlib takes them."""
    down = [middle - low for low, middle, _ in spans]
    return [middle for _, middle, _ in spans], [down, [high - mid for _, mid, high in spans]]


def _caption(family: Family) -> str:
    bound = "; the dotted grey line is a copy in each rank's own memory, a bound"
    has_bound = any(m.get("kind") == "bound" for m in family)
    bars = "intervals of the median of 95 % or more"
    if not all(m.time.is_95 for m in family):
        bars = "intervals of the median, or the range where there are under 6 values"
    return (
        f"Medians of the slowest rank, all sides in turn; bars are {bars}"
        f"{bound if has_bound else ''}. All axes are logarithmic."
    )


def _largest(family: Family) -> str:
    largest = max(int(m.get("bytes")) for m in family)
    ends = [
        f"{plain(m.side)} {format_time(m.time.median)}"
        for m in family
        if m.get("bytes") == largest
    ]
    return f"At {format_size(largest)}: {', '.join(ends)}."


def _table(family: Family, title: str) -> Table:
    return Table(f"Numbers of {title}", _HEADERS, list(_rows(family)))


def _rows(family: Family) -> list[list[str]]:
    ordered = sorted(family, key=lambda m: int(m.get("bytes")))
    return [
        [
            plain(m.side),
            format_size(int(m.get("bytes"))),
            format_time(m.time.median),
            format_interval(m.time),
            "" if m.get("busbw_GBps") is None else f"{m.get('busbw_GBps'):.3g}",
            ", ".join(f"{plain(p)} {x:.2f}×" for p, x in (m.get("speedup") or {}).items()),
        ]
        for m in ordered
    ]
