"""Confidence intervals of a median, from order statistics: nothing is assumed about the values.

Timings are neither normal nor symmetric, so the interval's ends are two of the sorted values: as
many are below the true median as heads come up among as many tosses of a coin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, inf
from statistics import median
from typing import Any

__all__ = ["Interval", "hull", "interval_of", "record_interval"]

_OUTSIDE = 0.05
_MOST = 1e15  # microseconds: a longer time is none, nor is one below the inverse
_LISTS = ("steps_us", "rounds_us")  # values of each round, in records that have them


@dataclass(frozen=True)
class Interval:
    """A median with its interval.

    Attributes
    ----------
    low, median, high
        In the unit of the values.
    values
        How many it is from, in each of `runs`.
    coverage
        Probability with which such an interval contains the median that was estimated; 0 if
        unknown.
    runs
        Over the intervals of how many runs it reaches.
    """

    low: float
    median: float
    high: float
    values: int
    coverage: float
    runs: int = 1

    @property
    def is_95(self) -> bool:
        """Whether it is at least a 95 % interval of the median."""
        return self.coverage >= 1 - _OUTSIDE and self.runs == 1

    @property
    def kind(self) -> str:
        """What it is, in a few words."""
        if self.coverage < 1 - _OUTSIDE:
            return "range"
        return "95 %" if self.runs == 1 else f"95 % in each of {self.runs} runs"

    def overlaps(self, other: Interval) -> bool:
        """Return whether a value is within both."""
        return self.low <= other.high and other.low <= self.high

    def scaled(self, factor: float) -> Interval:
        """Return the interval of the values times a positive `factor`."""
        ends = (self.low * factor, self.median * factor, self.high * factor)
        return replace(self, low=ends[0], median=ends[1], high=ends[2])

    def over(self, other: Interval) -> Interval:
        """Return the interval of the ratio of two independent medians, both positive.

        Its ends are the least and the most that both intervals allow, so it covers the ratio at
        least as often as both cover their medians at once.
        """
        coverage = max(0.0, self.coverage + other.coverage - 1)
        most = self.high / other.low if other.low > 0 else inf
        ends = (self.low / other.high, self.median / other.median, most)
        runs = max(self.runs, other.runs)
        return Interval(*ends, min(self.values, other.values), coverage, runs)


def interval_of(values: Sequence[float]) -> Interval:
    """Return the median of values and its 95 % interval; their range if they are fewer than 6.

    Notes
    -----
    The interval from the j-th least to the j-th largest of n values misses the median with
    probability 2 P(B < j), where B counts the heads of n tosses. The largest j is taken for
    which this is at most 5 %.
    """
    ordered, count = sorted(values), len(values)
    position, outside = 1, 2 * 0.5**count
    while position + 1 <= count // 2:
        wider = 2 * sum(comb(count, heads) for heads in range(position + 1)) / 2**count
        if wider > _OUTSIDE:
            break
        position, outside = position + 1, wider
    low, high = ordered[position - 1], ordered[count - position]
    return Interval(low, float(median(ordered)), high, count, max(0.0, 1 - outside))


def record_interval(record: Mapping[str, Any], name: str = "time_us") -> Interval | None:
    """Return the interval of a record's time; None if it has no time.

    The median is the one that the record tells, and the ends are from the medians of its rounds.
    Where the record has only the extremes of its rounds, the interval is from the least to the
    most: it covers the median at least as often as one of order statistics, and is wider.
    """
    figures = record.get(name)
    figures = figures if isinstance(figures, Mapping) else {}
    low, middle, high = (_figure(figures, one) for one in ("min", "median", "max"))
    for key in _LISTS if name == "time_us" else ():
        values = record.get(key)
        known = [_number(value) for value in values] if isinstance(values, list) else []
        numbers = [value for value in known if value is not None]
        if numbers and len(numbers) == len(known):
            found = _around(interval_of(numbers), middle)
            return found if found.median > 0 else None
    if low is None or middle is None or high is None or middle <= 0:
        return None
    rounds = record.get("rounds")
    count = rounds if isinstance(rounds, int) and rounds > 0 else 0
    coverage = max(0.0, 1 - 2 * 0.5**count) if count else 0.0
    return _around(Interval(low, middle, high, count, coverage), middle)


def hull(repeats: Sequence[Interval]) -> Interval:
    """Return one interval for the repeats of a measurement.

    From 6 repeats on it is the interval of their medians. Of fewer it reaches over the intervals
    of all of them, since what differs from run to run is not seen within one.
    """
    medians = [one.median for one in repeats]
    if len(repeats) == 1:
        return repeats[0]
    if len(repeats) >= 6:
        return interval_of(medians)
    low, high = min(one.low for one in repeats), max(one.high for one in repeats)
    coverage = min(one.coverage for one in repeats)
    values = min(one.values for one in repeats)
    return Interval(low, float(median(medians)), high, values, coverage, len(repeats))


def _around(interval: Interval, middle: float | None) -> Interval:
    """Return an interval with another median, made wider where that is outside."""
    if middle is None or middle <= 0:
        return interval
    low, high = min(interval.low, middle), max(interval.high, middle)
    return replace(interval, low=low, median=middle, high=high)


def _figure(figures: Mapping[str, Any], name: str) -> float | None:
    return _number(figures.get(name, figures.get(f"{name}_us")))


def _number(value: object) -> float | None:
    """Return a time; None of what is no number, or one that no clock can tell."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    is_time = value == 0 or 1 / _MOST <= value <= _MOST
    return float(value) if is_time else None
