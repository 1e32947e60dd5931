"""`Measurement`: what was measured once or in several repeats, found in the records of points."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mpistrat.bench.report.analysis.intervals import Interval, hull, record_interval
from mpistrat.bench.report.analysis.record_check import check_records
from mpistrat.bench.results.point import Point

__all__ = [
    "Measurement",
    "groups",
    "identity_of",
    "measurements_of",
    "options_of",
    "wrong_answers",
]

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)

# What a record tells of the outcome; all its other keys say what was measured.
_OUTCOMES = frozenset(
    (
        *("time_us", "steps_us", "rounds_us", "compute_us", "exposed_us", "recorded_us"),
        *("rounds", "steps", "buckets", "times", "median", "speedup", "ratios", "ratio"),
        *("algbw_GBps", "busbw_GBps", "GBps", "examples_per_s", "efficiency", "overlapped"),
        *("parts_us", "by_rank", "by_op", "loss_first", "loss_last", "correct"),
    )
)
# Options that change for how long something is measured, not what.
_DURATIONS = frozenset({"json", "seconds", "rounds", "steps"})


@dataclass(frozen=True)
class Measurement:
    """The records of one measurement.

    Attributes
    ----------
    point
        The first point with it.
    record
        The record whose median is the middle one of the repeats: figures that cannot be merged,
        such as the times of each rank, are taken from it.
    identity
        Equal for repeats of the same measurement, in other files, too.
    interval
        Of its time in microseconds; None if it has no time.
    repeats
        How many records it is from.
    """

    point: Point
    record: Mapping[str, Any]
    identity: str
    interval: Interval | None
    repeats: int

    def get(self, name: str, default: Any = None) -> Any:
        """Return what its record has under a key."""
        return self.record.get(name, default)

    @property
    def case(self) -> str:
        """The case that measured it."""
        return str(self.record.get("case", self.point.setup.case))

    @property
    def ranks(self) -> int:
        """Of the job."""
        return self.point.setup.ranks

    @property
    def nodes(self) -> int:
        """Of the job."""
        return self.point.setup.nodes

    @property
    def side(self) -> str:
        """What of several competitors was measured."""
        return str(self.record.get("side", "mpistrat"))

    @property
    def time(self) -> Interval:
        """Its interval; only for measurements that have one."""
        if self.interval is None:
            raise ValueError(f"{self.identity}: no time was measured")
        return self.interval


def measurements_of(points: Iterable[Point]) -> list[Measurement]:
    """Return the measurements of points that are ``ok``, repeats merged, without wrong answers.

    Raises
    ------
    UsageError
        A record is not as its case writes it.
    """
    found = groups(_records(points), lambda one: identity_of(*one))
    return [_merged(identity, members) for identity, members in found.items()]


def wrong_answers(points: Iterable[Point]) -> list[tuple[Point, Mapping[str, Any]]]:
    """Return the records whose answer was wrong, each with its point."""
    return [(p, one) for p in points for one in p.records if one.get("correct") is False]


def groups(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """Return items by key, in the order of the first of each."""
    found: dict[_Key, list[_Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def options_of(point: Point) -> str:
    """Return the options that say what was measured, as on the command line."""
    chosen = {k: v for k, v in point.setup.options.items() if k not in _DURATIONS}
    return " ".join(f"--{name} {value}".rstrip() for name, value in sorted(chosen.items()))


def identity_of(point: Point, record: Mapping[str, Any]) -> str:
    """Return what a record measured, and how: equal for repeats, in other files, too."""
    setup = point.setup
    what = {key: value for key, value in record.items() if key not in _OUTCOMES}
    what |= {"case": record.get("case", setup.case), "ranks": setup.ranks, "nodes": setup.nodes}
    return json.dumps([what, options_of(point)], sort_keys=True)


def _records(points: Iterable[Point]) -> Iterator[tuple[Point, Mapping[str, Any]]]:
    for point in points:
        if point.status != "ok":
            continue
        check_records(point)
        for record in point.records:
            if record.get("correct") is not False:
                yield from ((point, one) for one in _split(record))


def _split(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a record for each side of one that has the times of several, as of the case ps."""
    times = record.get("times")
    if not isinstance(times, Mapping):
        yield record
        return
    for side, figures in times.items():
        yield {**record, "side": side, "time_us": figures}


def _merged(identity: str, members: Sequence[tuple[Point, Mapping[str, Any]]]) -> Measurement:
    timed = [(record_interval(record), record) for _, record in members]
    with_time = [(one, record) for one, record in timed if one is not None]
    with_time.sort(key=lambda pair: pair[0].median)
    if not with_time:
        return Measurement(members[0][0], members[0][1], identity, None, len(members))
    middle = with_time[(len(with_time) - 1) // 2][1]
    interval = hull([one for one, _ in with_time])
    return Measurement(members[0][0], middle, identity, interval, len(members))
