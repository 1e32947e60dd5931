"""Choose the sections of a report from what was measured, and draw their figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mpistrat.bench.report import tables
from mpistrat.bench.report.analysis.measurements import Measurement
from mpistrat.bench.report.analysis.scaling_curves import studies
from mpistrat.bench.report.figures import best_side, by_size, overlap, servers, step_parts
from mpistrat.bench.report.figures import projection as projected
from mpistrat.bench.report.figures import scaling as scaled
from mpistrat.bench.report.figures import stragglers as boxes
from mpistrat.bench.report.figures.style import looks_of
from mpistrat.bench.report.headline import headline
from mpistrat.bench.report.machine import machine_table
from mpistrat.bench.report.projection_file import Projection
from mpistrat.bench.report.section import Figure, Section, Table
from mpistrat.bench.report.units import plain
from mpistrat.bench.results.point import Point

__all__ = ["sections_of"]

_Item = TypeVar("_Item")

# At most 28 figures together, so that the page can be read; the others are named.
_MOST = {
    "scaling": 4,
    "parts": 2,
    "boxes": 2,
    "sizes": 8,
    "maps": 2,
    "steps": 2,
    "ps": 2,
    "model": 6,
}
_SHOWN = ("collectives", "step", "ps", "rows", "strong", "weak", "train", "io", "replay")

_INTERVALS = (
    "Intervals are 95 % intervals of the median from order statistics (no distribution is"
    " assumed). Where a file has only the extremes of the rounds, or fewer than 6 values, they are"
    " the range instead; of several runs, the interval reaches over those of all runs, and from 6"
    " runs on it is that of their medians."
)
_TERMS = (
    "Times are those of the slowest rank. Bus bandwidth is that of nccl-tests: bytes over time,"
    " times 2(n-1)/n for allreduce, (n-1)/n for reduce_scatter, allgather, gather, scatter and"
    " alltoall, and 1 for the others, on n ranks. A side named auto is what mpistrat chose by"
    " itself, with its choice in brackets."
)
_READING = (
    "Each series has a colour, a marker or hatch, and a line style of its own, so that figures can"
    " be read in black and white. The numbers of each figure are in the table below it."
)


def sections_of(
    points: Sequence[Point], measurements: Sequence[Measurement], projection: Projection | None
) -> list[Section]:
    """Return the sections that have something to show."""
    found = [
        Section("In short", statements=headline(points, measurements)),
        _scaling(measurements),
        _training(measurements),
        _collectives(measurements),
        _steps(measurements),
        _servers(measurements),
        _files(measurements),
        _model(projection),
        _remaining(measurements),
        Section("Failed runs", tables=_present(tables.failure_table(points))),
        Section("Machine and versions", tables=[machine_table(points)]),
        Section("How to read this", statements=(_TERMS, _INTERVALS, _READING)),
    ]
    return [one for one in found if not one.is_empty]


def _scaling(measurements: Sequence[Measurement]) -> Section:
    found = studies(measurements)
    figures, left = _limited(found, _MOST["scaling"], scaled.scaling, "scaling")
    text = ("The work of all ranks together is fixed in strong scaling, that of each in weak.",)
    titles = [plain(one.title, 120) for one in left]
    return Section("Scaling", text, figures=figures, left_out=titles)


def _training(measurements: Sequence[Measurement]) -> Section:
    families = step_parts.families(measurements)
    figures, left = _limited(families, _MOST["parts"], step_parts.step_parts, "step-parts")
    titles = [step_parts.training_title(one[0]) for one in left]
    jobs = boxes.families(measurements)
    more, left_jobs = _limited(jobs, _MOST["boxes"], boxes.stragglers, "ranks")
    titles += [f"boxes of {step_parts.training_title(m)}, {m.ranks} ranks" for m in left_jobs]
    return Section("Steps of training", figures=[*figures, *more], left_out=titles)


def _collectives(measurements: Sequence[Measurement]) -> Section:
    chosen = [m for m in measurements if m.case in by_size.FAMILIES]
    bounds = [m.side for m in chosen if m.get("kind") == "bound"]
    looks = looks_of((m.side for m in chosen), bounds)
    families = by_size.families(measurements)
    lines = [one for one in families if len({m.get("bytes") for m in one}) > 1]

    def draw(family: by_size.Family, name: str) -> Figure:
        return by_size.by_size(family, looks, name)

    figures, left = _limited(lines, _MOST["sizes"], draw, "by-size")
    titles = [by_size.title_of(one) for one in left]
    grids, left_maps = _limited(
        best_side.maps(measurements),
        _MOST["maps"],
        lambda rows, name: best_side.best_side(rows, looks, name),
        "fastest",
    )
    titles += [f"map of {by_size.title_of([rows[0][0].first])}" for rows in left_maps]
    short = by_size.single_sizes([one for one in families if one not in lines])
    return Section(
        "Collectives", figures=[*figures, *grids], tables=_present(short), left_out=titles
    )


def _steps(measurements: Sequence[Measurement]) -> Section:
    families = overlap.families(measurements)
    figures, left = _limited(families, _MOST["steps"], overlap.overlap, "step")
    titles = [f"{one[0].get('model')}, {one[0].ranks} ranks" for one in left]
    return Section("Overlap of computation and communication", figures=figures, left_out=titles)


def _servers(measurements: Sequence[Measurement]) -> Section:
    families = servers.families(measurements)
    figures, left = _limited(families, _MOST["ps"], servers.servers, "ps")
    titles = [f"table of {one[0].get('table')}, {one[0].get('rows')} rows" for one in left]
    return Section("Parameter servers", figures=figures, left_out=titles)


def _files(measurements: Sequence[Measurement]) -> Section:
    found = [*_present(tables.io_table(measurements)), *tables.replay_tables(measurements)]
    return Section("Checkpoints and replayed timelines", tables=found)


def _model(projection: Projection | None) -> Section:
    if projection is None:
        return Section("Projection")
    rows = [
        [plain(v.what, 120), f"{v.predicted:.4g} s", f"{v.measured:.4g} s", f"{v.error:+.1%}"]
        for v in projection.validation
    ]
    headers = ("point, not used by the fit", "predicted", "measured", "error")
    checked = Table("Predictions and measurements of the same", headers, rows) if rows else None
    families = projected.families(projection.series)
    figures, left = _limited(families, _MOST["model"], projected.projection, "projection")
    statements = [plain(one, 400) for one in projection.statements]
    titles = [one[0].name for one in left]
    return Section(
        "Projection",
        [plain(projection.title, 200) + "."],
        statements,
        figures,
        _present(checked),
        titles,
    )


def _remaining(measurements: Sequence[Measurement]) -> Section:
    return Section("Other cases", tables=_present(tables.other_table(measurements, _SHOWN)))


def _limited(
    items: Sequence[_Item], most: int, draw: Callable[[_Item, str], Figure], name: str
) -> tuple[list[Figure], Sequence[_Item]]:
    """Draw at most so many of some items; return the figures, and the items left out."""
    return [draw(one, f"{name}-{at}") for at, one in enumerate(items[:most], 1)], items[most:]


def _present(table: Table | None) -> list[Table]:
    return [] if table is None else [table]
