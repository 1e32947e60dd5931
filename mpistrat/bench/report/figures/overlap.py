"""The case step: computation and exposed communication of each side."""

from __future__ import annotations

from collections.abc import Sequence

from mpistrat.bench.report.analysis.measurements import Measurement, groups, options_of
from mpistrat.bench.report.analysis.step_shares import (
    computed_us,
    efficiency,
    exposed_us,
    hidden,
)
from mpistrat.bench.report.figures.style import below, looks_of, new_figure
from mpistrat.bench.report.file_names import layout_parts, named
from mpistrat.bench.report.section import Figure, Table
from mpistrat.bench.report.units import (
    bars_of,
    format_interval,
    format_layout,
    format_ratio,
    format_time,
    plain,
    unit_of,
)

__all__ = ["families", "overlap"]

_HEADERS = ("side", "step (median)", "interval", "computation", "exposed communication")
_MORE = ("communication hidden behind computation", "efficiency", "times as fast as")
_PARTS = ("computation", "exposed communication")


def families(measurements: Sequence[Measurement]) -> list[list[Measurement]]:
    """Return the sides of each network and layout, by ascending ranks."""
    names = ("model", "scale", "compute_ms", "bucket_bytes")
    chosen = [m for m in measurements if m.case == "step" and m.interval and m.get("compute_us")]
    found = groups(
        chosen,
        lambda m: (*(str(m.get(one)) for one in names), m.ranks, m.nodes, options_of(m.point)),
    )
    return sorted(found.values(), key=lambda members: (members[0].ranks, members[0].nodes))


def overlap(members: Sequence[Measurement]) -> Figure:
    """Draw a bar for each side: the computation, then what communication adds to it."""
    drawing, (axes,) = new_figure(9.6, 1.7 + 0.42 * len(members))
    looks, places = looks_of(_PARTS), list(range(len(members)))[::-1]
    factor, unit = unit_of(m.time.high for m in members)
    computed = [computed_us(m) / factor for m in members]
    exposed = [exposed_us(m) / factor for m in members]
    axes.barh(places, computed, 0.62, **looks[_PARTS[0]].bars())
    axes.barh(places, exposed, 0.62, left=computed, **looks[_PARTS[1]].bars())
    bars = list(axes.containers)
    middle = [m.time.median / factor for m in members]
    ends = [
        [(m.time.median - m.time.low) / factor for m in members],
        [(m.time.high - m.time.median) / factor for m in members],
    ]
    axes.errorbar(middle, places, xerr=ends, fmt="none", ecolor="black", capsize=3, lw=1)
    axes.set_yticks(places, [plain(m.side) for m in members])
    axes.grid(visible=False, axis="y")
    axes.set_xlim(left=0)
    axes.set_xlabel(f"time of a step, {unit}")
    axes.set_ylabel("side")
    below(drawing, bars, _PARTS, columns=2)
    title = _title(members[0])
    caption = (
        "Medians over rounds in which all sides took turns. Exposed communication is the step less"
        " the computation alone, and efficiency the computation over the step. Black bars are"
        f" {bars_of(m.time for m in members)}."
    )
    table = Table(f"Numbers of {title}", (*_HEADERS, *_MORE), [_row(m, members) for m in members])
    return Figure(_name(members[0]), title, _alt(members, title), caption, drawing, table)


def _name(m: Measurement) -> str:
    scale = "" if m.get("scale") in (None, 1, 1.0) else f"scale-{m.get('scale'):g}"
    return named("overlap", m.get("model"), scale, *layout_parts(m.ranks, m.nodes))


def _title(m: Measurement) -> str:
    scale = "" if m.get("scale") in (None, 1, 1.0) else f" at scale {m.get('scale'):g}"
    what = (
        f"Step of {m.get('model')}{scale}, {float(m.get('compute_ms') or 0):g} ms of computation"
    )
    return plain(f"{what}, {format_layout(m.ranks, m.nodes)}", 120)


def _row(m: Measurement, sides: Sequence[Measurement]) -> list[str]:
    share = hidden(m, sides)
    return [
        plain(m.side),
        format_time(m.time.median),
        format_interval(m.time),
        format_time(computed_us(m)),
        format_time(exposed_us(m)) if m.get("kind") != "bound" else "",
        "" if share is None else f"{share:.0%}",
        f"{efficiency(m):.0%}",
        ", ".join(format_ratio(*one) for one in m.over.items()),
    ]


def _alt(members: Sequence[Measurement], title: str) -> str:
    times = [f"{plain(m.side)} {format_time(m.time.median)}" for m in members]
    return f"A bar for each side. {title}. Time of a step: {'; '.join(times)}."
