"""Compare two result files: what became slower or faster by more than noise explains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mpistrat.bench.report.analysis.measurements import (
    Measurement,
    identity_of,
    measurements_of,
    options_of,
    wrong_answers,
)
from mpistrat.bench.report.tables import last_line
from mpistrat.bench.report.units import format_batch, format_layout, format_size, plain
from mpistrat.bench.results.point import Point

__all__ = ["Change", "Comparison", "compare", "name_of"]

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

    def is_beyond(self, threshold: float) -> bool:
        """Return whether the times differ by more than `threshold` of the old and of noise.

        They do if the intervals do not overlap, and the ratio is above 1 + threshold or below
        1 / (1 + threshold).
        """
        apart = not self.old.time.overlaps(self.new.time)
        return apart and max(self.ratio, 1 / self.ratio) > 1 + threshold


@dataclass(frozen=True)
class Comparison:
    """What differs between two files.

    Attributes
    ----------
    slower, faster
        Beyond noise and threshold, the largest change first.
    equal
        How many measurements are within them.
    only_old, only_new
        Names of measurements that one file does not have.
    failed
        What was right in the old file, and in each repeat of the new one failed or was wrong.
    """

    slower: Sequence[Change]
    faster: Sequence[Change]
    equal: int
    only_old: Sequence[str] = field(default=())
    only_new: Sequence[str] = field(default=())
    failed: Sequence[str] = field(default=())

    @property
    def is_regression(self) -> bool:
        """Whether something became slower or newly fails."""
        return bool(self.slower or self.failed)

    @property
    def is_empty(self) -> bool:
        """Whether no measurement is in both files."""
        return not (self.slower or self.faster or self.equal)


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
    pairs = [Change(before[one], after[one]) for one in before if one in after]
    beyond = [pair for pair in pairs if pair.is_beyond(threshold)]
    slower = sorted((p for p in beyond if p.ratio > 1), key=lambda p: -p.ratio)
    faster = sorted((p for p in beyond if p.ratio < 1), key=lambda p: p.ratio)
    return Comparison(
        slower,
        faster,
        len(pairs) - len(beyond),
        [name_of(m) for one, m in before.items() if one not in after],
        [name_of(m) for one, m in after.items() if one not in before],
        [*_failed(old, new), *_wrong(before, after, new)],
    )


def name_of(m: Measurement) -> str:
    """Return what was measured as a line."""
    op, nbytes = m.get("op"), m.get("bytes")
    parts = [m.case, *([str(op)] if op not in (None, "none") else [])]
    parts += [str(m.get(key)) for key in _TOLD if isinstance(m.get(key), str)]
    parts += [format_size(nbytes)] if isinstance(nbytes, int) and nbytes else []
    parts += [f"batch {format_batch(m.get('global_batch'))}"] if m.get("global_batch") else []
    where = f"{format_layout(m.ranks, m.nodes)} {options_of(m.point)}".strip()
    return plain(f"{' '.join(parts)}, {m.side}, {where}", 160)


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
        if identity in before and identity not in after:
            side = plain(f"{record.get('side', '')} {record.get('op', '')}")
            yield f"{plain(point.setup.title, 120)}: the answer of {side} was wrong"


def _key(point: Point) -> tuple[str, str, int, int]:
    setup = point.setup
    return setup.case, options_of(point), setup.ranks, setup.nodes
