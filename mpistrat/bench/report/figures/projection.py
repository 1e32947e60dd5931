"""A model's projection of times to more ranks than were measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpistrat.bench.report.analysis.measurements import groups
from mpistrat.bench.report.figures.axes import rank_axis, time_axis
from mpistrat.bench.report.figures.style import IDEAL, Look, below, looks_of, new_figure
from mpistrat.bench.report.file_names import named
from mpistrat.bench.report.projection_file import Series
from mpistrat.bench.report.section import Figure, Table
from mpistrat.bench.report.units import format_time, plain

__all__ = ["families", "projection"]

_DASHES = (0, (4, 2))
_EXTRAPOLATED, _MEASURED = " (extrapolation)", " (measured)"
_CAPTION = (
    "Large markers without a line are measured. Lines are the model: solid where it was fitted,"
    " dashed where it is an extrapolation; shaded, with dotted edges, is its band. Lines that are"
    " drawn first are wider, so that both are seen where two coincide. Both axes are logarithmic."
)


def families(series: Sequence[Series]) -> list[list[Series]]:
    """Return the series of each subject, which is the part of their names before a colon.

    A subject of one number of ranks is left out: one dot is no figure.
    """
    found = groups(series, lambda one: _subject(one.name)).values()
    return [one for one in found if len({x for line in one for x in line.x}) > 1]


def projection(series: Sequence[Series]) -> Figure:
    """Draw the series of a subject: measured points as markers, models as lines with bands."""
    drawing, (axes,) = new_figure(9.6, 4.6)
    looks = looks_of(_base(one) for one in series)
    limit = _limit(series)
    widths = _widths(series)
    handles = {}
    for one in sorted(series, key=lambda one: one.measured):
        look = looks[_base(one)]
        if one.measured:
            handles[one.name] = _points(axes, one, look)
        else:
            handles.setdefault(_base(one), _model(axes, one, (look, widths[_base(one)]), limit))
    rank_axis(axes, [round(x) for one in series for x in one.x])
    ends = [one.y + one.low + one.high for one in series]
    time_axis(axes.yaxis, [seconds * 1e6 for values in ends for seconds in values])
    title = f"Projected {_subject(series[0].name)}"
    axes.set_title("Time, logarithmic")
    if limit is not None:
        line = axes.axvline(limit, color=IDEAL, linestyle=":", linewidth=1)
        handles["the most ranks measured"] = line
    below(drawing, list(handles.values()), [_label(told) for told in handles])
    name = named("projection", _subject(series[0].name).partition(" (")[0])
    table = Table(title, ("series", "ranks", "time", "band", "kind"), _rows(series))
    return Figure(name, title, _alt(series, title), _CAPTION, drawing, table)


def _widths(series: Sequence[Series]) -> dict[str, float]:
    """Return widths of lines: the first are wider, and seen where a later one lies on them."""
    names = list(dict.fromkeys(_base(one) for one in series if not one.measured))
    return {name: 1.4 + 0.9 * (len(names) - 1 - at) for at, name in enumerate(names)}


def _subject(name: str) -> str:
    return name.partition(": ")[0] if ": " in name else "times by ranks"


def _label(name: str) -> str:
    return plain(name.partition(": ")[2] or name)


def _base(one: Series) -> str:
    """Return a name that a model's line shares with its measured points and its extrapolation."""
    return one.name.removesuffix(_EXTRAPOLATED).removesuffix(_MEASURED)


def _limit(series: Sequence[Series]) -> float | None:
    """Return up to how many ranks lines are solid; None if series say it by their names."""
    if any(one.name.endswith(_EXTRAPOLATED) for one in series):
        return None
    return max((max(one.x) for one in series if one.measured), default=None)


def _points(axes: Any, one: Series, look: Look) -> Any:
    times = [seconds * 1e6 for seconds in one.y]
    marks: dict[str, Any] = {"color": look.colour, "marker": look.marker, "linestyle": "none"}
    return axes.plot(one.x, times, zorder=5, markersize=9, markerfacecolor="white", **marks)[0]


def _model(axes: Any, one: Series, drawn_as: tuple[Look, float], limit: float | None) -> Any:
    look, width = drawn_as
    if one.low and one.high:
        low, high = ([seconds * 1e6 for seconds in ends] for ends in (one.low, one.high))
        axes.fill_between(one.x, low, high, color=look.colour, alpha=0.1, linewidth=0)
        for ends in (low, high):
            axes.plot(one.x, ends, color=look.colour, linewidth=0.8, linestyle=":")
    points = [(x, seconds * 1e6) for x, seconds in zip(one.x, one.y, strict=True)]
    is_beyond = one.name.endswith(_EXTRAPOLATED)
    fitted = [] if is_beyond else [p for p in points if limit is None or p[0] <= limit]
    beyond = fitted[-1:] + points[len(fitted) :]
    marks: dict[str, Any] = {"color": look.colour, "marker": look.marker, "lw": width}
    drawn = None
    if fitted:
        drawn = axes.plot(*zip(*fitted, strict=True), linestyle="-", **marks)[0]
    if len(beyond) > 1 or not fitted:
        drawn = axes.plot(*zip(*beyond, strict=True), linestyle=_DASHES, **marks)[0]
    return drawn


def _rows(series: Sequence[Series]) -> list[list[str]]:
    rows = []
    for one in series:
        for place, (ranks, seconds) in enumerate(zip(one.x, one.y, strict=True)):
            band = ""
            if one.low and one.high and not one.measured:
                low, high = one.low[place] * 1e6, one.high[place] * 1e6
                band = f"{format_time(low)} to {format_time(high)}"
            kind = "measured" if one.measured else "model"
            cells = [f"{ranks:,.0f}", format_time(seconds * 1e6), band, kind]
            rows.append([_label(one.name), *cells])
    return rows


def _alt(series: Sequence[Series], title: str) -> str:
    ends = [
        f"{_label(one.name)} {format_time(one.y[-1] * 1e6)} on {one.x[-1]:,.0f} ranks"
        for one in series
    ]
    return f"A line chart of time by ranks. {title}: {'; '.join(ends)}."
