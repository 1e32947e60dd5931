"""Tables of a report that have no figure: io, replay, other cases, and what failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mpistrat.bench.report.analysis.measurements import (
    Measurement,
    left_out,
    options_of,
    wrong_answers,
)
from mpistrat.bench.report.analysis.rates import file_rate
from mpistrat.bench.report.section import Table
from mpistrat.bench.report.units import (
    format_interval,
    format_layout,
    format_rate,
    format_size,
    format_time,
    plain,
)
from mpistrat.bench.results.point import Point

__all__ = ["failure_table", "io_table", "last_line", "other_table", "replay_tables"]

_TIMED = ("time (median)", "interval")
# Keys that have other columns, or that are of no use in a line.
_ELSEWHERE = frozenset(
    ("case", "side", "ranks", "nodes", "kind", "backend", "correct", "rank", "host", "op")
)


def io_table(measurements: Iterable[Measurement]) -> Table | None:
    """Return the times of checkpoints saved and restored."""
    rows = [
        [
            plain(m.get("op")),
            plain(m.side),
            format_layout(m.ranks, m.nodes),
            _size(m.get("bytes")),
            *_times(m),
            format_rate(file_rate(m)),
        ]
        for m in measurements
        if m.case == "io"
    ]
    headers = ("operation", "side", "layout", "size", *_TIMED, "GB/s (interval)")
    return Table("Checkpoints saved and restored", headers, rows) if rows else None


def replay_tables(measurements: Iterable[Measurement]) -> list[Table]:
    """Return the times of replayed timelines, and of each of their operations."""
    chosen = [m for m in measurements if m.case == "replay"]
    rows, operations = [], []
    for m in chosen:
        source, layout = plain(m.get("source")), format_layout(m.ranks, m.nodes)
        recorded = m.get("recorded_us")
        ratio = f"{m.time.median / recorded:.2f}" if recorded and m.interval else ""
        recorded_time = format_time(recorded) if recorded else ""
        counts = [str(m.get("calls", "")), _size(m.get("bytes"))]
        rows.append([source, layout, *counts, recorded_time, *_times(m), ratio])
        for op, one in (m.get("by_op") or {}).items():
            operations.append([source, layout, plain(op), *_operation(one)])
    headers = ("timeline", "layout", "calls", "size", "recorded", *_TIMED, "replayed / recorded")
    by_op = ("timeline", "layout", "operation", "calls", "size", "time (median)")
    tables = [Table("Collectives of a recorded timeline, replayed", headers, rows)] if rows else []
    return tables + ([Table("By operation", by_op, operations)] if operations else [])


def other_table(measurements: Iterable[Measurement], shown: Iterable[str]) -> Table | None:
    """Return the times of cases that no figure is of.

    Parameters
    ----------
    measurements
        All that were read.
    shown
        Cases that other sections show.
    """
    known = set(shown)
    rows = [
        [m.case, plain(m.side), format_layout(m.ranks, m.nodes), _what(m), *_times(m)]
        for m in measurements
        if m.case not in known and m.interval
    ]
    headers = ("case", "side", "layout", "what", *_TIMED)
    return Table("Cases without a figure", headers, rows) if rows else None


def failure_table(points: Sequence[Point]) -> Table | None:
    """Return what did not end well, each with the last line that it printed."""
    rows = [
        [plain(p.setup.title, 120), str(p.repeat), p.status, f"{p.duration_s:.1f} s", last_line(p)]
        for p in points
        if p.status != "ok"
    ]
    for point, record in wrong_answers(points):
        side = f"{record.get('side', '')} {record.get('op', '')}".strip()
        message = plain(f"the answer of {side or 'a side'} was wrong", 160)
        title = plain(point.setup.title, 120)
        rows.append([title, str(point.repeat), "wrong", f"{point.duration_s:.1f} s", message])
    for point, problem in left_out(points):
        title = plain(point.setup.title, 120)
        rows.append([title, str(point.repeat), "left out", f"{point.duration_s:.1f} s", problem])
    headers = ("what", "repeat", "status", "duration", "last line of its output")
    return Table("Runs that failed", headers, rows) if rows else None


def last_line(point: Point) -> str:
    """Return the last line of what a point printed that is not empty."""
    lines = [line for line in point.message.splitlines() if line.strip()]
    return plain(lines[-1], 160) if lines else "nothing was printed"


def _times(m: Measurement) -> list[str]:
    if m.interval is None:
        return ["", ""]
    return [format_time(m.time.median), format_interval(m.time)]


def _what(m: Measurement) -> str:
    parts = [str(m.get("op"))] if m.get("op") not in (None, "none") else []
    parts += [
        format_size(value) if key == "bytes" and isinstance(value, int) else f"{key} {value}"
        for key, value in m.record.items()
        if key not in _ELSEWHERE and isinstance(value, (str, int)) and not isinstance(value, bool)
    ]
    return plain(" ".join([", ".join(parts), options_of(m.point)]), 120)


def _operation(one: Mapping[str, Any]) -> list[str]:
    median = one.get("median_us")
    return [
        str(one.get("calls", "")),
        _size(one.get("bytes")),
        format_time(median) if isinstance(median, (int, float)) else "",
    ]


def _size(nbytes: Any) -> str:
    return format_size(nbytes) if isinstance(nbytes, int) else ""
