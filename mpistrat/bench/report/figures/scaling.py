"""Strong or weak scaling: time of a step and efficiency by ranks, with the ideal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import PercentFormatter

from mpistrat.bench.report.analysis.intervals import Interval
from mpistrat.bench.report.analysis.scaling_curves import Curve, CurvePoint, Study
from mpistrat.bench.report.figures.axes import rank_axis, time_axis
from mpistrat.bench.report.figures.step_parts import training_parts
from mpistrat.bench.report.figures.style import IDEAL, Look, below, looks_of, new_figure
from mpistrat.bench.report.file_names import named
from mpistrat.bench.report.section import Figure, Table
from mpistrat.bench.report.units import (
    bars_of,
    format_interval,
    format_layout,
    format_time,
    plain,
    sentence,
)

__all__ = ["scaling"]

_HEADERS = ("curve", "ranks", "time of a step (median)", "interval", "values", "ideal")
_MORE = ("efficiency", "interval of efficiency", "serial fraction")
_SLOWER = " (above 1: slower than 1 rank)"


def scaling(study: Study) -> Figure:
    """Draw a study: one line for each curve, the ideal dotted."""
    drawing, (times, efficiencies) = new_figure(9.6, 4.1, columns=2)
    looks = looks_of(curve.label for curve in study.curves)
    handles, labels = [], []
    for curve in study.curves:
        handles.append(_time_line(times, curve, looks[curve.label]))
        labels.append(plain(curve.label))
        _efficiency_line(efficiencies, curve, looks[curve.label])
    handles.append(_ideal_lines(times, study.curves))
    efficiencies.axhline(1, color=IDEAL, linestyle=":")
    times.set_title("Time of a step, logarithmic")
    efficiencies.set_title("Efficiency over the base")
    top = max(1.0, *(one.efficiency.high for curve in study.curves for one in curve.points))
    efficiencies.set_ylim(0, min(2.0, top * 1.08))
    efficiencies.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    for axes in (times, efficiencies):
        rank_axis(axes, [one.ranks for curve in study.curves for one in curve.points])
    time_axis(times.yaxis, _all_times(study))
    below(drawing, handles, [*labels, "ideal"])
    table = Table(f"Numbers of {study.title}", (*_HEADERS, *_MORE), _rows(study))
    return Figure(
        _name(study),
        sentence(study.title),
        _alt(study),
        _caption(study),
        drawing,
        table,
    )


def _name(study: Study) -> str:
    case, *rest = training_parts(study.curves[0].points[0].measurement)
    return named(case, "scaling", *rest)


def _time_line(axes: Any, curve: Curve, look: Look) -> Any:
    ranks = [one.ranks for one in curve.points]
    intervals = [one.time for one in curve.points]
    return axes.errorbar(
        ranks, [i.median for i in intervals], yerr=_ends(intervals), **look.lines()
    )


def _efficiency_line(axes: Any, curve: Curve, look: Look) -> None:
    ranks = [one.ranks for one in curve.points]
    intervals = [one.efficiency for one in curve.points]
    axes.errorbar(ranks, [i.median for i in intervals], yerr=_ends(intervals), **look.lines())


def _ideal_lines(axes: Any, curves: Sequence[Curve]) -> Any:
    for curve in curves:
        ranks = [one.ranks for one in curve.points]
        ideal = [curve.ideal_us(count) for count in ranks]
        (drawn,) = axes.plot(ranks, ideal, color=IDEAL, linestyle=":", zorder=1)
    return drawn


def _ends(intervals: Sequence[Interval]) -> list[list[float]]:
    return [[i.median - i.low for i in intervals], [i.high - i.median for i in intervals]]


def _all_times(study: Study) -> list[float]:
    found = []
    for curve in study.curves:
        for one in curve.points:
            found += [one.time.low, one.time.high, curve.ideal_us(one.ranks)]
    return found


def _rows(study: Study) -> list[list[str]]:
    return [_row(curve, one) for curve in study.curves for one in curve.points]


def _row(curve: Curve, one: CurvePoint) -> list[str]:
    efficiency, fraction = one.efficiency, one.serial_fraction
    return [
        plain(curve.label),
        format_layout(one.ranks, one.measurement.nodes),
        format_time(one.time.median),
        format_interval(one.time),
        _values(one.time),
        format_time(curve.ideal_us(one.ranks)),
        f"{efficiency.median:.1%}",
        "base" if one is curve.points[0] else _span(efficiency),
        "" if fraction is None else f"{fraction:.3f}{_SLOWER if fraction > 1 else ''}",
    ]


def _span(efficiency: Interval) -> str:
    return f"{efficiency.low:.1%} to {efficiency.high:.1%} ({efficiency.kind})"


def _values(time: Interval) -> str:
    """Return how many values an interval is from; of several runs, those of each."""
    return f"{time.runs} × {time.values}" if time.runs > 1 else str(time.values)


def _caption(study: Study) -> str:
    formula = "T(p0) p0 / (p T(p))" if study.is_strong else "T(p0) / T(p)"
    bases = sorted({curve.points[0].ranks for curve in study.curves})
    intervals = [one.time for curve in study.curves for one in curve.points]
    return (
        f"Efficiency is {formula} with p0 = {', '.join(map(str, bases))}; the dotted line is the"
        f" ideal. Bars of times are {bars_of(intervals)}; those of the efficiency reach as far as"
        " both times allow. Both axes of the left chart are logarithmic."
    )


def _alt(study: Study) -> str:
    ends = []
    for curve in study.curves:
        last = curve.points[-1]
        ends.append(
            f"{plain(curve.label)} takes {format_time(last.time.median)} on {last.ranks} ranks,"
            f" an efficiency of {last.efficiency.median:.0%} over {curve.points[0].ranks}"
        )
    return f"Two line charts of {study.title}, by ranks: {'; '.join(ends)}."
