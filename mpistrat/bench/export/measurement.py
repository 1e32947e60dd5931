"""`Measurement`: one record of a result file, with what all formats need of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mpistrat.bench.results.point import Point

__all__ = ["Measurement", "measurements"]


@dataclass(frozen=True)
class Measurement:
    """The times of one side of one row.

    Attributes
    ----------
    point
        The run that it is of.
    record
        What the case wrote.
    median_us, min_us, max_us
        Times of the slowest rank, in microseconds.
    """

    point: Point
    record: Mapping[str, Any]
    median_us: float
    min_us: float
    max_us: float

    @property
    def name(self) -> tuple[str, ...]:
        """Case, operation or model, and side, as far as the record has them."""
        record = self.record
        # The backend that was chosen is another on other numbers of ranks; the side is the same.
        side = str(record.get("side", "")).replace(f" ({record.get('backend')})", "")
        parts = (self.point.setup.case, record.get("op"), record.get("model"), side)
        return tuple(str(part) for part in parts if part)

    @property
    def nbytes(self) -> int:
        """The size in bytes; 0 where there is none."""
        found = self.record.get("bytes")
        return found if isinstance(found, int) and found > 0 else 0

    def number(self, name: str) -> float:
        """Return a figure of the record, NaN where it has none."""
        found = _as_number(self.record.get(name))
        return math.nan if found is None else found


def measurements(points: Iterable[Point]) -> Iterator[Measurement]:
    """Yield every record that has a median time, of the runs that did not fail."""
    for point in points:
        for record in point.records if point.status == "ok" else ():
            times = record.get("time_us")
            if not isinstance(times, Mapping):
                continue
            median = _time(times, "median")
            if median is not None:
                least, most = (_time(times, name) for name in ("min", "max"))
                yield Measurement(point, record, median, least or median, most or median)


def _time(times: Mapping[str, Any], name: str) -> float | None:
    return _as_number(times.get(name, times.get(f"{name}_us")))


def _as_number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]
