"""Find what was measured in the records of points, and merge repeats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from mpistrat.bench.report.analysis.intervals import hull, record_interval
from mpistrat.bench.report.analysis.measurement import Measurement, groups
from mpistrat.bench.report.analysis.merging import OUTCOMES, merged_record
from mpistrat.bench.report.analysis.peers import with_ratios
from mpistrat.bench.report.analysis.record_check import problem_of
from mpistrat.bench.results.point import Point

__all__ = [
    "Measurement",
    "groups",
    "identity_of",
    "left_out",
    "measurements_of",
    "options_of",
    "wrong_answers",
]

_Run: TypeAlias = tuple[int, Point, Mapping[str, Any]]

# Options that change for how long something is measured, not what.
_DURATIONS = frozenset({"json", "seconds", "rounds", "steps"})


def measurements_of(points: Iterable[Point]) -> list[Measurement]:
    """Return the measurements of points that are ``ok``, repeats merged.

    Left out are wrong answers, and records that are not as their case writes them.
    """
    found = groups(_records(points), lambda one: identity_of(one[1], one[2]))
    return with_ratios([_merged(identity, members) for identity, members in found.items()])


def wrong_answers(points: Iterable[Point]) -> list[tuple[Point, Mapping[str, Any]]]:
    """Return the records whose answer was wrong, each with its point."""
    return [(p, one) for p in points for one in p.records if one.get("correct") is False]


def left_out(points: Iterable[Point]) -> list[tuple[Point, str]]:
    """Return the records that are not as their case writes them: the point, and what is wrong."""
    return [
        (point, f"record {number}: {problem}")
        for point in points
        if point.status == "ok"
        for number, record in enumerate(point.records, 1)
        if (problem := problem_of(point, record)) is not None
    ]


def options_of(point: Point) -> str:
    """Return the options that say what was measured, as on the command line."""
    chosen = {k: v for k, v in point.setup.options.items() if k not in _DURATIONS}
    return " ".join(f"--{name} {value}".rstrip() for name, value in sorted(chosen.items()))


def identity_of(point: Point, record: Mapping[str, Any]) -> str:
    """Return what a record measured, and how: equal for repeats, in other files, too."""
    setup = point.setup
    what = {key: value for key, value in record.items() if key not in OUTCOMES}
    what |= {"case": record.get("case", setup.case), "ranks": setup.ranks, "nodes": setup.nodes}
    return json.dumps([what, options_of(point)], sort_keys=True)


def _records(points: Iterable[Point]) -> Iterator[_Run]:
    for number, point in enumerate(points):
        if point.status != "ok":
            continue
        for record in point.records:
            if record.get("correct") is not False and problem_of(point, record) is None:
                yield from ((number, point, one) for one in _split(record))


def _split(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a record for each side of one that has the times of several, as of the case ps."""
    times = record.get("times")
    if not isinstance(times, Mapping):
        yield record
        return
    for side, figures in times.items():
        yield {**record, "side": side, "time_us": figures}


def _merged(identity: str, members: Sequence[_Run]) -> Measurement:
    timed = [(record_interval(record), number, record) for number, _, record in members]
    intervals = [interval for interval, _, _ in timed if interval is not None]
    runs = {number: record for interval, number, record in timed if interval is not None}
    return Measurement(
        point=members[0][1],
        record=merged_record([record for _, _, record in members]),
        identity=identity,
        interval=hull(intervals) if intervals else None,
        repeats=len(members),
        runs=runs,
        intervals=intervals,
    )
