"""Latency and bus bandwidth of a collective by size: mpistrat, its peers and the bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpistrat.bench.report.analysis.measurements import Measurement, groups
from mpistrat.bench.report.analysis.operations import Family, name_parts, title_of
from mpistrat.bench.report.analysis.rates import bus_bandwidth
from mpistrat.bench.report.figures.axes import rate_axis, size_axis, time_axis
from mpistrat.bench.report.figures.style import Look, below, new_figure
from mpistrat.bench.report.file_names import named
from mpistrat.bench.report.section import Figure, Table
from mpistrat.bench.report.units import (
    bars_of,
    format_interval,
    format_rate,
    format_ratio,
    format_size,
    format_time,
    plain,
)

__all__ = ["by_size", "single_sizes"]

_HEADERS = (
    *("side", "message size", "time (median)", "interval"),
    *("bus bandwidth GB/s (interval)", "times as fast as"),
)


def by_size(family: Family, looks: Mapping[str, Look]) -> Figure:
    """Draw time and bandwidth of a family by size, with a line for each side."""
    drawing, (times, bandwidths) = new_figure(9.6, 4.1, columns=2)
    handles = []
    for side, members in groups(family, lambda m: m.side).items():
        members.sort(key=lambda m: int(m.get("bytes")))
        handles.append(_lines(times, bandwidths, members, looks[side]))
    sides = [plain(side) for side in groups(family, lambda m: m.side)]
    sizes = [int(m.get("bytes")) for m in family]
    time_axis(times.yaxis, [end for m in family for end in _time(m)])
    times.set_title("Time of a call, logarithmic")
    rates = [end for m in family for end in _rate(m)]
    rate_axis(bandwidths.yaxis, rates)
    if not rates:
        place = {"ha": "center", "transform": bandwidths.transAxes}
        bandwidths.text(0.5, 0.5, "no bandwidth: nothing is sent", **place)
    bandwidths.set_title("Bus bandwidth, GB/s, logarithmic")
    for axes in (times, bandwidths):
        size_axis(axes, sizes, _size_label(family))
    below(drawing, handles, sides, columns=4)
    title = title_of(family)
    alt = (
        f"Two line charts of {title} by size, {format_size(min(sizes))} to"
        f" {format_size(max(sizes))}: time of a call, and bus bandwidth, of {', '.join(sides)}."
        f" {_largest(family)}"
    )
    name = named(*name_parts(family[0]))
    return Figure(name, title, alt, _caption(family), drawing, _table(family, title))


def single_sizes(chosen: Sequence[Family]) -> Table | None:
    """Return a table of families of one size, for which a line cannot be drawn."""
    rows = [[title_of(family), *row] for family in chosen for row in _rows(family)]
    headers = ("operation", *_HEADERS)
    return Table("Operations that were measured at one size", headers, rows) if rows else None


def _lines(times: Any, bandwidths: Any, members: Family, look: Look) -> Any:
    sizes = [int(m.get("bytes")) for m in members]
    drawn = times.errorbar(sizes, *_spread([_time(m) for m in members]), **look.lines())
    with_rate = [m for m in members if _rate(m)]
    sizes = [int(m.get("bytes")) for m in with_rate]
    bandwidths.errorbar(sizes, *_spread([_rate(m) for m in with_rate]), **look.lines())
    return drawn


def _time(m: Measurement) -> tuple[float, float, float]:
    return m.time.low, m.time.median, m.time.high


def _rate(m: Measurement) -> tuple[float, ...]:
    """Return the bus bandwidth at the ends of the interval and at the median; empty without it."""
    rate = bus_bandwidth(m)
    return () if rate is None else (rate.low, rate.median, rate.high)


def _size_label(family: Family) -> str:
    is_gathered = family[0].get("op") in ("allgather", "gather")
    return "message size (pieces of all ranks together)" if is_gathered else "message size"


def _spread(spans: Sequence[tuple[float, ...]]) -> tuple[list[float], list[list[float]]]:
    """Return middles, and their distances to the ends, as matplotlib takes them."""
    down = [middle - low for low, middle, _ in spans]
    return [middle for _, middle, _ in spans], [down, [high - mid for _, mid, high in spans]]


def _caption(family: Family) -> str:
    bound = (
        "; the dotted grey line is a copy of the same bytes by each rank at the same time, about"
        " the least that an all-reduce can take"
    )
    has_bound = any(m.get("kind") == "bound" for m in family)
    bars = bars_of(m.time for m in family)
    return (
        f"Medians of the slowest rank, all sides in turn; bars are {bars}"
        f"{bound if has_bound else ''}. Bandwidths are of the times on the left, at the median and"
        " at the ends of its bar. All axes are logarithmic."
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
            format_rate(bus_bandwidth(m)),
            ", ".join(format_ratio(*one) for one in m.over.items()),
        ]
        for m in ordered
    ]
