"""The section of a report with a model's projection."""

from __future__ import annotations

from mpistrat.bench.report.figures import projection as projected
from mpistrat.bench.report.projection_file import Projection
from mpistrat.bench.report.section import Section, Table
from mpistrat.bench.report.units import format_time, plain

__all__ = ["projection_section"]


def projection_section(projection: Projection | None, most: int) -> Section:
    """Return the section, with at most so many figures; an empty one without a projection."""
    if projection is None:
        return Section("Projection")
    families = projected.families(projection.series)
    return Section(
        "Projection",
        [plain(projection.title, 200) + "."],
        [plain(one, 400) for one in projection.statements],
        [projected.projection(one) for one in families[:most]],
        _checked(projection),
        [one[0].name for one in families[most:]],
    )


def _checked(projection: Projection) -> list[Table]:
    rows = [
        [plain(v.what, 120), _seconds(v.predicted), _seconds(v.measured), f"{v.error:+.1%}"]
        for v in projection.validation
    ]
    headers = ("point, not used by the fit", "predicted", "measured", "error")
    return [Table("Predictions and measurements of the same", headers, rows)] if rows else []


def _seconds(value: float) -> str:
    return format_time(value * 1e6)
