"""`Change`: a measurement in two files, and whether it became slower by more than noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from mpistrat.bench.report.analysis.intervals import Interval
from mpistrat.bench.report.analysis.measurements import Measurement, options_of
from mpistrat.bench.report.units import format_batch, format_layout, format_size, plain

__all__ = ["LEAST_REPEATS", "Change", "name_of"]

LEAST_REPEATS = 3
"""Of 2 runs each, all of one file's are above all of the other's in 1 of 3 files by chance."""

_MANY = 6  # repeats from which on a measurement has a 95 % interval of its runs' medians
_TOLD = ("model", "network", "family", "name", "reduction", "dtype", "overlap")


@dataclass(frozen=True)
class Change:
    """A measurement that both files have.

    Attributes
    ----------
    old, new
        Its two outcomes.
    """

    old: Measurement
    new: Measurement

    @property
    def ratio(self) -> float:
        """The new time over the old one; above 1 it became slower."""
        return self.new.time.median / self.old.time.median

    @property
    def can_be_judged(self) -> bool:
        """Whether both files have enough runs to tell a change from what differs by run."""
        return self._fewest >= LEAST_REPEATS

    def is_beyond(self, threshold: float) -> bool:
        """Return whether the times differ by more than `threshold` of the old and of noise.

        The faster of both median times, times 1 + `threshold`, has to be below the slower one.
        Noise: with 6 runs in each file or more the 95 % intervals of the runs' medians must not
        overlap. With 3 to 5 the intervals of all runs of each file must be apart by a larger
        ratio than that of the ends of either: as so few values seldom show how far they spread.
        """
        if not self.can_be_judged:
            return False
        first, last = sorted((self.old.time.median, self.new.time.median))
        return last > first * (1 + threshold) and self._is_apart()

    @property
    def _fewest(self) -> int:
        return min(len(self.old.intervals), len(self.new.intervals))

    def _is_apart(self) -> bool:
        if self._fewest >= _MANY:
            return not self.old.time.overlaps(self.new.time)
        ranges = sorted(_range(one.intervals) for one in (self.old, self.new))
        (_, top), (bottom, _) = ranges
        return _over(bottom, top) > max(1.0, *(_over(high, low) for low, high in ranges))


def name_of(m: Measurement) -> str:
    """Return what was measured as a line."""
    op, nbytes = m.get("op"), m.get("bytes")
    parts = [m.case, *([str(op)] if op not in (None, "none") else [])]
    parts += [str(m.get(key)) for key in _TOLD if isinstance(m.get(key), str)]
    parts += [format_size(nbytes)] if isinstance(nbytes, int) and nbytes else []
    parts += [f"batch {format_batch(m.get('global_batch'))}"] if m.get("global_batch") else []
    where = f"{format_layout(m.ranks, m.nodes)} {options_of(m.point)}".strip()
    return plain(f"{' '.join(parts)}, {m.side}, {where}", 160)


def _range(runs: Sequence[Interval]) -> tuple[float, float]:
    return min(one.low for one in runs), max(one.high for one in runs)


def _over(high: float, low: float) -> float:
    return high / low if low > 0 else inf
