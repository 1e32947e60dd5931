"""Strong and weak scaling: time and efficiency by number of ranks, over a named base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mpistrat.bench.report.analysis.intervals import Interval
from mpistrat.bench.report.analysis.measurements import Measurement, groups, options_of
from mpistrat.bench.report.units import format_batch

__all__ = ["Curve", "CurvePoint", "Study", "studies"]


@dataclass(frozen=True)
class CurvePoint:
    """A measured number of ranks.

    Attributes
    ----------
    measurement
        Of its time of a step.
    efficiency
        1 if as fast as the ideal.
    serial_fraction
        Karp and Flatt's: the share of the work that would explain the speedup if it alone were
        not parallel. None for weak scaling, and for a base of several ranks.
    """

    measurement: Measurement
    efficiency: Interval
    serial_fraction: float | None

    @property
    def ranks(self) -> int:
        """Of the job."""
        return self.measurement.ranks

    @property
    def time(self) -> Interval:
        """Of a step, in microseconds."""
        return self.measurement.time


@dataclass(frozen=True)
class Curve:
    """The points of one layout of ranks on machines, in ascending order.

    Attributes
    ----------
    label
        Side and layout.
    is_strong
        Whether the work of all ranks together is fixed, not that of each.
    points
        The first is the base.
    """

    label: str
    is_strong: bool
    points: Sequence[CurvePoint]

    def ideal_us(self, ranks: int) -> float:
        """Return the time of a step if the base's efficiency were kept."""
        base = self.points[0]
        return base.time.median * (base.ranks / ranks if self.is_strong else 1.0)


@dataclass(frozen=True)
class Study:
    """The curves of one network and batch.

    Attributes
    ----------
    title
        What was trained.
    is_strong
        Whether the work of all ranks together is fixed.
    curves
        At least one, each of at least two points.
    """

    title: str
    is_strong: bool
    curves: Sequence[Curve]


def studies(measurements: Iterable[Measurement]) -> list[Study]:
    """Return the studies of strong, then of weak scaling; those of one rank count are left out."""
    chosen = [m for m in measurements if m.case in ("strong", "weak") and m.interval]
    chosen.sort(key=lambda m: m.case)
    found = []
    for title, members in groups(chosen, _title).items():
        is_strong = members[0].case == "strong"
        curves = list(_curves(members, is_strong))
        if curves:
            found.append(Study(title, is_strong, curves))
    return found


def _title(m: Measurement) -> str:
    batch = f"global batch {format_batch(m.get('global_batch'))}"
    if m.case == "weak":
        batch = f"batch {format_batch(m.get('rank_batch'))} a rank"
    return f"{m.case} scaling of {m.get('network')} ({m.get('family')}), {batch}"


def _curves(members: Sequence[Measurement], is_strong: bool) -> Iterator[Curve]:
    variants = groups(members, lambda m: (m.side, options_of(m.point)))
    sides = {side for side, _ in variants}
    for (side, options), found in variants.items():
        layouts = [one for one in _layouts(found) if len(one[1]) > 1]
        for layout, points in layouts:
            parts = [side] if len(sides) > 1 or len(layouts) == 1 else []
            parts += [layout] if len(layouts) > 1 else []
            parts += [options] if len(variants) > len(sides) and options else []
            yield Curve(", ".join(parts), is_strong, _points(points, is_strong))


def _layouts(found: Sequence[Measurement]) -> Iterator[tuple[str, list[Measurement]]]:
    """Yield the ranks of one machine, and those of several with equally many on each."""
    alone = [m for m in found if m.nodes == 1]
    yield "one node", alone
    spread = groups((m for m in found if m.nodes > 1), lambda m: m.ranks / m.nodes)
    for each, several in spread.items():
        start = [m for m in alone if m.ranks == each]
        yield f"{each:g} {'rank' if each == 1 else 'ranks'} a node", [*start, *several]


def _points(found: Sequence[Measurement], is_strong: bool) -> list[CurvePoint]:
    ordered = sorted(found, key=lambda m: (m.ranks, m.nodes))
    base = ordered[0]
    return [_point(m, base, is_strong) for m in ordered]


def _point(m: Measurement, base: Measurement, is_strong: bool) -> CurvePoint:
    if m is base:
        return CurvePoint(m, Interval(1.0, 1.0, 1.0, m.time.values, 1.0), None)
    efficiency = base.time.over(m.time)
    if not is_strong:
        return CurvePoint(m, efficiency, None)
    efficiency = efficiency.scaled(base.ranks / m.ranks)
    if base.ranks != 1 or m.ranks == 1:
        return CurvePoint(m, efficiency, None)
    inverse = m.time.median / base.time.median
    return CurvePoint(m, efficiency, (inverse - 1 / m.ranks) / (1 - 1 / m.ranks))
