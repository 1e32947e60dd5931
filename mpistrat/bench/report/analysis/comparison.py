"""Compare two result files: what became slower or faster by more than noise explains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mpistrat.bench.report.analysis.change import Change, name_of
from mpistrat.bench.report.analysis.measurements import (
    Measurement,
    identity_of,
    left_out,
    measurements_of,
    options_of,
    wrong_answers,
)
from mpistrat.bench.report.machine import machine_changes
from mpistrat.bench.report.tables import last_line
from mpistrat.bench.report.units import plain
from mpistrat.bench.results.point import Point

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Comparison:
    """What differs between two files.

    Attributes
    ----------
    slower, faster
        Beyond noise and threshold, the largest change first.
    equal
        How many measurements are within them.
    unjudged
        How many have too few repeats to tell a change from what differs from run to run.
    peers
        What of other libraries, and of copies of the same bytes, is beyond noise and threshold:
        it tells of the machine, and is no regression.
    only_old, only_new
        Names of measurements that one file does not have.
    failed
        What was right in the old file, and in each repeat of the new one failed or was wrong.
    left_out
        Why records of either file were left out, with their places.
    machines
        What differs between the machines of the files.
    """

    slower: Sequence[Change]
    faster: Sequence[Change]
    equal: int
    unjudged: int = 0
    peers: Sequence[Change] = field(default=())
    only_old: Sequence[str] = field(default=())
    only_new: Sequence[str] = field(default=())
    failed: Sequence[str] = field(default=())
    left_out: Sequence[str] = field(default=())
    machines: Sequence[str] = field(default=())

    @property
    def is_regression(self) -> bool:
        """Whether something became slower or newly fails."""
        return bool(self.slower or self.failed)

    @property
    def is_empty(self) -> bool:
        """Whether no measurement is in both files."""
        return not (self.slower or self.faster or self.equal or self.unjudged)

    @property
    def is_judged(self) -> bool:
        """Whether at least one measurement had enough repeats, or one newly fails."""
        return bool(self.slower or self.faster or self.equal or self.failed)


def compare(old: Sequence[Point], new: Sequence[Point], threshold: float) -> Comparison:
    """Pair the measurements of two files by setup and identity, and sort the pairs.

    Parameters
    ----------
    old, new
        The points of each.
    threshold
        The least relative change that counts, 0.05 for 5 %.
    """
    before, after = _by_identity(old), _by_identity(new)
    both = [Change(before[one], after[one]) for one in before if one in after]
    pairs = [pair for pair in both if not pair.new.is_peer]
    judged = [pair for pair in pairs if pair.can_be_judged]
    slower, faster = _beyond(judged, threshold)
    others = _beyond([pair for pair in both if pair.new.is_peer], threshold)
    return Comparison(
        slower,
        faster,
        equal=len(judged) - len(slower) - len(faster),
        unjudged=len(pairs) - len(judged),
        peers=[*others[0], *others[1]],
        only_old=[name_of(m) for one, m in before.items() if one not in after],
        only_new=[name_of(m) for one, m in after.items() if one not in before],
        failed=[*_failed(old, new), *_wrong(before, after, new)],
        left_out=[*_left_out("old", old), *_left_out("new", new)],
        machines=machine_changes(old, new),
    )


def _beyond(pairs: Iterable[Change], threshold: float) -> tuple[list[Change], list[Change]]:
    """Return what became slower and what became faster, each with the largest change first."""
    beyond = sorted((p for p in pairs if p.is_beyond(threshold)), key=lambda p: p.ratio)
    slower = [pair for pair in beyond if pair.new.time.median > pair.old.time.median]
    return slower[::-1], beyond[: len(beyond) - len(slower)]


def _by_identity(points: Iterable[Point]) -> dict[str, Measurement]:
    found = (m for m in measurements_of(points) if m.interval and m.time.median > 0)
    return {m.identity: m for m in found}


def _failed(old: Sequence[Point], new: Sequence[Point]) -> list[str]:
    was_ok = {_key(p) for p in old if p.status == "ok"}
    is_ok = {_key(p) for p in new if p.status == "ok"}
    lost = {_key(p): p for p in new if p.status != "ok"}
    return [
        f"{plain(p.setup.title, 120)}: {p.status}: {last_line(p)}"
        for key, p in lost.items()
        if key in was_ok and key not in is_ok
    ]


def _wrong(
    before: Mapping[str, Measurement], after: Mapping[str, Measurement], new: Sequence[Point]
) -> Iterator[str]:
    """Yield the measurements whose answer was right in the old file, and is not in the new one."""
    for point, record in wrong_answers(new):
        identity = identity_of(point, record)
        is_ours = identity in before and not before[identity].is_peer
        if is_ours and identity not in after:
            side = plain(f"{record.get('side', '')} {record.get('op', '')}")
            yield f"{plain(point.setup.title, 120)}: the answer of {side} was wrong"


def _left_out(name: str, points: Sequence[Point]) -> list[str]:
    return [f"{name}, {plain(p.setup.title, 120)}: {why}" for p, why in left_out(points)]


def _key(point: Point) -> tuple[str, str, int, int]:
    setup = point.setup
    return setup.case, options_of(point), setup.ranks, setup.nodes
