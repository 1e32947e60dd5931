"""`Measurement`: one record of a result file, with what all formats need of it."""

from __future__ import annotations

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
        return int(self.record.get("bytes") or 0)


def measurements(points: Iterable[Point]) -> Iterator[Measurement]:
    """Yield every record that has times, of the runs that did not fail."""
    for point in points:
        for record in point.records if point.status == "ok" else ():
            times = record.get("time_us")
            if not isinstance(times, Mapping):
                continue
            found = [_number(times, name) for name in ("median", "min", "max")]
            if None not in found:
                yield Measurement(point, record, *found)  # type: ignore[arg-type]


def _number(times: Mapping[str, Any], name: str) -> float | None:
    value = times.get(name, times.get(f"{name}_us"))
    return float(value) if isinstance(value, int | float) else None
