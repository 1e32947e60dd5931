"""`Measurement`: what was measured once or in several repeats."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mpistrat.bench.report.analysis.intervals import Interval
from mpistrat.bench.results.point import Point

__all__ = ["Measurement", "groups"]

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)

_PEERS = frozenset(("memcpy", "numpy", "tensorflow"))  # of the cases ps and rows


@dataclass(frozen=True)
class Measurement:
    """The records of one measurement.

    Attributes
    ----------
    point
        The first point with it.
    record
        What was measured, and the outcomes merged over the repeats.
    identity
        Equal for repeats of the same measurement, in other files, too.
    interval
        Of its time in microseconds; None if it has no time.
    runs
        The record of each repeat that has a time, by the number of its point.
    repeats
        How many records it is from.
    intervals
        Of the time of each repeat that has one.
    over
        How many times as fast as others it is, by their names: a ratio of medians, with the range
        of the runs' ratios.
    """

    point: Point
    record: Mapping[str, Any]
    identity: str
    interval: Interval | None
    repeats: int
    runs: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    over: Mapping[str, Interval] = field(default_factory=dict)
    intervals: Sequence[Interval] = ()

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
    def is_peer(self) -> bool:
        """Whether it is of another library, or a bound such as a copy, and not of mpistrat."""
        if "times" in self.record:  # whose kind is that of a call
            return self.side.split(" ")[0] in _PEERS
        return self.record.get("kind") in {"peer", "bound"}

    @property
    def time(self) -> Interval:
        """Its interval; only for measurements that have one."""
        if self.interval is None:
            raise ValueError(f"{self.identity}: no time was measured")
        return self.interval


def groups(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """Return items by key, in the order of the first of each."""
    found: dict[_Key, list[_Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
