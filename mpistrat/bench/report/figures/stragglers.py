"""A box for each rank: is one of them slower than the others, and on which machine?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from mpistrat.bench.report.analysis.measurements import Measurement
from mpistrat.bench.report.figures.step_parts import TRAINING, training_parts, training_title
from mpistrat.bench.report.figures.style import IDEAL, below, looks_of, new_figure
from mpistrat.bench.report.file_names import layout_parts, named
from mpistrat.bench.report.section import Figure, Table
from mpistrat.bench.report.units import format_layout, format_time, plain, unit_of

__all__ = ["families", "stragglers"]

_MOST_BOXES, _MOST_ROWS = 48, 1024
_FIVE = ("min", "q1", "median", "q3", "max")
_MOST_LOOKS = 7  # of machines; of more, colours would be the same again
_HOSTS_NAMED = 12  # boxes up to which there is room for host names


def families(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements of several ranks that tell each rank's time, largest jobs first."""
    chosen = [m for m in measurements if m.case in TRAINING and len(m.get("by_rank") or ()) > 1]
    return sorted(chosen, key=lambda m: -m.ranks)


def stragglers(m: Measurement) -> Figure:
    """Draw a box for each rank; of more than 48 ranks only for the 48 slowest."""
    ranks = list(m.get("by_rank"))
    shown = sorted(ranks, key=lambda one: -float(one["median"]))[:_MOST_BOXES]
    shown.sort(key=lambda one: int(one["rank"]))
    drawing, (axes,) = new_figure(max(5.4, min(9.6, 3.4 + 0.42 * len(shown))), 3.9)
    _draw(axes, shown, median(float(one["median"]) for one in ranks))
    _legend(drawing, axes, shown)
    title = f"Time of each rank, {training_title(m)}, {format_layout(m.ranks, m.nodes)}"
    left_out = "" if len(shown) == len(ranks) else f" The {len(shown)} slowest ranks are shown."
    machines = (
        " Colour and hatch tell the machine." if len(set(_hosts(shown))) <= _MOST_LOOKS else ""
    )
    caption = (
        "A rank's own time in a step, outside of collectives: box from quartile to quartile, line"
        f" at the median, whiskers to the least and the most; the dotted line is the median of all"
        f" ranks' medians.{machines}{left_out}{_start(axes)}"
    )
    name = named("ranks", *training_parts(m), *layout_parts(m.ranks, m.nodes))
    return Figure(
        name, plain(title, 140), _alt(shown, title), caption, drawing, _table(ranks, title)
    )


def _start(axes: Any) -> str:
    return " The axis of time does not start at 0." if axes.get_ylim()[0] > 0 else ""


def _draw(axes: Any, shown: Sequence[Mapping[str, Any]], of_all_us: float) -> None:
    looks = looks_of(_hosts(shown))
    factor, unit = unit_of(float(one["max"]) for one in shown)
    boxes = [_box(one, factor) for one in shown]
    drawn = axes.bxp(boxes, showfliers=False, patch_artist=True, widths=0.6)
    for patch, one in zip(drawn["boxes"], shown, strict=True):
        look = looks[str(one["host"]) if len(looks) <= _MOST_LOOKS else next(iter(looks))]
        patch.set(facecolor=look.colour, hatch=look.hatch, edgecolor="black")
    for line in drawn["medians"]:
        line.set(color="black", linewidth=2.6)
    axes.axhline(of_all_us / factor, color=IDEAL, linestyle=":")
    axes.set_title(f"Own time in a step, {unit}")
    axes.set_xlabel("rank" if len(shown) > _HOSTS_NAMED else "rank, machine")
    axes.grid(visible=False, axis="x")
    names = [_tick(one, len(shown)) for one in shown]
    axes.set_xticks(range(1, len(shown) + 1), names)
    if len(shown) > 2 * _HOSTS_NAMED:
        axes.tick_params(axis="x", labelrotation=90, labelsize=7)


def _hosts(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(one["host"]) for one in ranks]


def _legend(drawing: Any, axes: Any, shown: Sequence[Mapping[str, Any]]) -> None:
    """Name the machines, where there are few and the axis does not name them."""
    hosts = {str(one["host"]): patch for one, patch in zip(shown, axes.patches, strict=True)}
    if len(shown) > _HOSTS_NAMED and 1 < len(hosts) <= _MOST_LOOKS:
        below(drawing, list(hosts.values()), [plain(host, 24) for host in hosts], columns=4)


def _tick(one: Mapping[str, Any], boxes: int) -> str:
    is_named = boxes <= _HOSTS_NAMED
    return f"{one['rank']}\n{plain(one['host'], 10)}" if is_named else str(one["rank"])


def _box(one: Mapping[str, Any], factor: float) -> dict[str, Any]:
    low, first, middle, third, high = (float(one[name]) / factor for name in _FIVE)
    return {"whislo": low, "q1": first, "med": middle, "q3": third, "whishi": high}


def _table(ranks: Sequence[Mapping[str, Any]], title: str) -> Table:
    rows = [
        [str(one["rank"]), plain(one["host"]), *(format_time(float(one[name])) for name in _FIVE)]
        for one in ranks[:_MOST_ROWS]
    ]
    rest = "" if len(ranks) <= _MOST_ROWS else f" (ranks 0 to {_MOST_ROWS - 1:,})"
    return Table(plain(title, 140) + rest, ("rank", "host", *_FIVE), rows)


def _alt(shown: Sequence[Mapping[str, Any]], title: str) -> str:
    slowest = max(shown, key=lambda one: float(one["median"]))
    fastest = min(shown, key=lambda one: float(one["median"]))
    return (
        f"A box for each rank. {title}. The slowest is rank {slowest['rank']} on"
        f" {plain(slowest['host'])} with a median of {format_time(float(slowest['median']))}, the"
        f" fastest rank {fastest['rank']} with {format_time(float(fastest['median']))}."
    )
