"""Find the fastest side of each size and layout, and its lead over the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mpistrat.bench.report.analysis.measurements import Measurement, groups
from mpistrat.bench.report.analysis.operations import families
from mpistrat.bench.report.units import format_size

__all__ = ["Winner", "maps", "nominal_size", "winner"]

_MOST_ITEM_BYTES = 16


@dataclass(frozen=True)
class Winner:
    """The fastest side of one size and layout.

    Attributes
    ----------
    first
        The fastest.
    second
        The next; None if nothing else was measured.
    """

    first: Measurement
    second: Measurement | None

    @property
    def gain(self) -> float:
        """How many times faster it is than the next; 1 without one."""
        return self.second.time.median / self.first.time.median if self.second else 1.0

    @property
    def is_clear(self) -> bool:
        """Whether the intervals of the two do not overlap."""
        return self.second is not None and not self.first.time.overlaps(self.second.time)


def winner(sides: Sequence[Measurement]) -> Winner:
    """Return the fastest of the sides of one size and layout, by medians."""
    first, *others = sorted(sides, key=lambda m: m.time.median)
    return Winner(first, others[0] if others else None)


def maps(measurements: Sequence[Measurement]) -> list[list[list[Winner]]]:
    """Return the winners of each operation: a list for each layout, in order of sizes."""
    found: dict[Any, list[list[Winner]]] = {}
    for family in families([m for m in measurements if m.get("kind") != "bound"]):
        by_size = groups(family, nominal_size)
        row = [winner(sides) for sides in by_size.values()]
        row.sort(key=lambda one: int(one.first.get("bytes")))
        if any(one.second for one in row):
            found.setdefault(_operation(family[0]), []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: (row[0].first.ranks, row[0].first.nodes))
    return list(found.values())


def nominal_size(m: Measurement) -> str:
    """Return a size without what was rounded down so that all ranks have equal pieces."""
    nbytes = int(m.get("bytes"))
    nominal = 1 << (nbytes - 1).bit_length()
    is_rounded = nominal - nbytes < min(_MOST_ITEM_BYTES * m.ranks, nominal / 8)
    return format_size(nominal if is_rounded else nbytes)


def _operation(m: Measurement) -> tuple[str, ...]:
    names = ("op", "dtype", "reduction", "in_place", "registered", "shared")
    return tuple(str(m.get(name)) for name in names)
