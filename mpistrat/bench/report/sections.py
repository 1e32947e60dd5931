"""Choose the sections of a report from what was measured, and draw their figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mpistrat.bench.report import tables
from mpistrat.bench.report.analysis import operations, winners
from mpistrat.bench.report.analysis.measurements import Measurement
from mpistrat.bench.report.analysis.scaling_curves import studies
from mpistrat.bench.report.figures import (
    best_side,
    by_size,
    overlap,
    servers,
    step_parts,
)
from mpistrat.bench.report.figures import scaling as scaled
from mpistrat.bench.report.figures import stragglers as boxes
from mpistrat.bench.report.figures.style import looks_of
from mpistrat.bench.report.file_names import with_unique_names
from mpistrat.bench.report.headline import headline
from mpistrat.bench.report.machine import machine_table
from mpistrat.bench.report.projection_file import Projection
from mpistrat.bench.report.projection_section import projection_section
from mpistrat.bench.report.reading import HOW_TO_READ
from mpistrat.bench.report.section import Figure, Section, Table
from mpistrat.bench.report.units import counted, plain
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
        projection_section(projection, _MOST["model"]),
        _remaining(measurements),
        Section("Failed runs", tables=_present(tables.failure_table(points))),
        Section("Machine and versions", tables=[machine_table(points)]),
        Section("How to read this", statements=HOW_TO_READ),
    ]
    return with_unique_names(one for one in found if not one.is_empty)


def _scaling(measurements: Sequence[Measurement]) -> Section:
    found = studies(measurements)
    figures, left = _limited(found, _MOST["scaling"], scaled.scaling)
    text = ("Strong scaling keeps the total work fixed, weak scaling the work of each rank.",)
    titles = [plain(one.title, 120) for one in left]
    return Section("Scaling", text, figures=figures, left_out=titles)


def _training(measurements: Sequence[Measurement]) -> Section:
    families = step_parts.families(measurements)
    figures, left = _limited(families, _MOST["parts"], step_parts.step_parts)
    titles = [step_parts.training_title(one[0]) for one in left]
    jobs = boxes.families(measurements)
    more, left_jobs = _limited(jobs, _MOST["boxes"], boxes.stragglers)
    titles += [f"boxes of {step_parts.training_title(m)}, {m.ranks} ranks" for m in left_jobs]
    return Section("Steps of training", figures=[*figures, *more], left_out=titles)


def _collectives(measurements: Sequence[Measurement]) -> Section:
    chosen = [m for m in measurements if m.case in operations.FAMILIES]
    bounds = [m.side for m in chosen if m.get("kind") == "bound"]
    looks = looks_of((m.side for m in chosen), bounds)
    families = operations.families(measurements)
    lines = [one for one in families if len({m.get("bytes") for m in one}) > 1]

    def draw(family: operations.Family) -> Figure:
        return by_size.by_size(family, looks)

    figures, left = _limited(lines, _MOST["sizes"], draw)
    titles = [operations.title_of(one) for one in left]
    grids, left_maps = _limited(
        winners.maps(measurements),
        _MOST["maps"],
        lambda rows: best_side.best_side(rows, looks),
    )
    titles += [f"map of {operations.title_of([rows[0][0].first])}" for rows in left_maps]
    short = by_size.single_sizes([one for one in families if one not in lines])
    return Section(
        "Collectives", figures=[*figures, *grids], tables=_present(short), left_out=titles
    )


def _steps(measurements: Sequence[Measurement]) -> Section:
    families = overlap.families(measurements)
    shown, left = families[-_MOST["steps"] :], families[: -_MOST["steps"]]
    figures = [overlap.overlap(one) for one in shown]
    titles = [plain(f"{one[0].get('model')}, {counted(one[0].ranks, 'rank')}") for one in left]
    return Section("Overlap of computation and communication", figures=figures, left_out=titles)


def _servers(measurements: Sequence[Measurement]) -> Section:
    families = servers.families(measurements)
    figures, left = _limited(families, _MOST["ps"], servers.servers)
    titles = [f"table of {one[0].get('table')}, {one[0].get('rows')} rows" for one in left]
    return Section("Parameter servers", figures=figures, left_out=titles)


def _files(measurements: Sequence[Measurement]) -> Section:
    found = [*_present(tables.io_table(measurements)), *tables.replay_tables(measurements)]
    return Section("Checkpoints and replayed timelines", tables=found)


def _remaining(measurements: Sequence[Measurement]) -> Section:
    return Section("Other cases", tables=_present(tables.other_table(measurements, _SHOWN)))


def _limited(
    items: Sequence[_Item], most: int, draw: Callable[[_Item], Figure]
) -> tuple[list[Figure], Sequence[_Item]]:
    """Draw at most so many of some items; return the figures, and the items left out."""
    return [draw(one) for one in items[:most]], items[most:]


def _present(table: Table | None) -> list[Table]:
    return [] if table is None else [table]
