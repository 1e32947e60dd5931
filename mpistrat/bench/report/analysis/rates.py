"""Bandwidths and throughputs of a measurement, by the times that are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from mpistrat.bench.report.analysis.intervals import Interval, record_interval
from mpistrat.bench.report.analysis.measurements import Measurement

__all__ = ["bus_bandwidth", "file_rate", "server_value"]

_LEAST = 1e-3  # of the median: what a low end of 0 is taken for


def bus_bandwidth(m: Measurement) -> Interval | None:
    """Return the bus bandwidth in GB/s: bytes, times the operation's factor, over the time."""
    return _rate_of(m, "busbw_GBps")


def file_rate(m: Measurement) -> Interval | None:
    """Return the rate of a checkpoint in GB/s."""
    return _rate_of(m, "GBps")


def server_value(m: Measurement) -> Interval:
    """Return the figure of a call of parameter servers or of a table, in its unit."""
    if m.case == "rows":
        return _per(m.time, float(m.get("rows")))
    told = [(float(one["median"][m.side]), time) for one, time in _timed(m)]
    if "us a " in str(m.get("unit", "")):
        return m.time.scaled(median(value / time for value, time in told))
    return _per(m.time, median(value * time for value, time in told))


def _rate_of(m: Measurement, name: str) -> Interval | None:
    work = [float(one[name]) * time for one, time in _timed(m) if one.get(name)]
    return _per(m.time, median(work)) if work and m.interval else None


def _timed(m: Measurement) -> Iterator[tuple[Mapping[str, Any], float]]:
    for one in m.runs.values():
        interval = record_interval(one)
        if interval is not None:
            yield one, interval.median


def _per(time: Interval, work: float) -> Interval:
    """Return work over time: the rate is low where the time is high."""
    low_us = max(time.low, time.median * _LEAST)
    ends = (work / time.high, work / time.median, work / low_us)
    return Interval(*ends, time.values, time.coverage, time.runs)
