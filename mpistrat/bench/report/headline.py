"""The results in a few sentences, for the top of the page and for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpistrat.bench.report.analysis.measurements import (
    Measurement,
    groups,
    left_out,
    wrong_answers,
)
from mpistrat.bench.report.analysis.scaling_curves import Curve, Study, studies
from mpistrat.bench.report.machine import mixed_machines
from mpistrat.bench.report.summaries import collectives, others, steps
from mpistrat.bench.report.units import (
    counted,
    plain,
    sentence,
)
from mpistrat.bench.results.point import Point

__all__ = ["headline"]


_MOST_COLLECTIVES = 8


def headline(points: Sequence[Point], measurements: Sequence[Measurement]) -> list[str]:
    """Return sentences about all results, the most important first."""
    found = [*mixed_machines(points), _counted(points, measurements), *_oversubscribed(points)]
    found += [_scaling(study) for study in studies(measurements)]
    told = list(collectives(_largest_jobs(measurements, "collectives")))
    found += told[:_MOST_COLLECTIVES]
    found += steps(_largest_jobs(measurements, "step"))
    found += others(_largest_jobs(measurements, "ps") + _largest_jobs(measurements, "io"))
    return found


def _largest_jobs(measurements: Sequence[Measurement], case: str) -> list[Measurement]:
    """Return a case's measurements with the most ranks of each operation."""
    chosen = [m for m in measurements if m.case == case and m.interval]
    by_op = groups(chosen, lambda m: (str(m.get("op")), str(m.get("model"))))
    found = []
    for members in by_op.values():
        most = max((m.ranks, m.nodes) for m in members)
        found += [m for m in members if (m.ranks, m.nodes) == most]
    return found


def _counted(points: Sequence[Point], measurements: Sequence[Measurement]) -> str:
    failed = sum(point.status != "ok" for point in points)
    wrong = len(wrong_answers(points))
    parts = [f"{counted(len(points), 'run')}, {counted(len(measurements), 'measurement')}"]
    parts[0] += _repeats(measurements)
    parts += [f"{counted(failed, 'run')} failed"] if failed else []
    parts += [counted(wrong, "wrong answer")] if wrong else []
    left = len(left_out(points))
    parts += [f"{counted(left, 'record')} left out, not as the case writes it"] if left else []
    return "; ".join(parts) + "."


def _repeats(measurements: Sequence[Measurement]) -> str:
    counts = sorted({m.repeats for m in measurements})
    if not counts or counts[-1] == 1:
        return ""
    return f", {counts[0]} to {counts[-1]} repeats" if counts[1:] else f", {counts[0]} repeats"


def _oversubscribed(points: Sequence[Point]) -> Iterator[str]:
    """Warn of times that are the operating system's as much as the program's."""
    crowded = [point for point in points if _has_too_few_cpus(point)]
    if crowded:
        yield (
            f"In {len(crowded)} of them a machine had more ranks than CPUs: there ranks wait for"
            " each other to leave a CPU, and times say little about machines with enough of them."
        )


def _has_too_few_cpus(point: Point) -> bool:
    cores = point.facts.get("cores")
    return isinstance(cores, int) and point.setup.ranks > cores * point.setup.nodes


def _scaling(study: Study) -> str:
    """Return a sentence about the curve with the most ranks."""
    curve = max(study.curves, key=lambda one: one.points[-1].ranks)
    base, last = curve.points[0], curve.points[-1]
    found = last.efficiency
    kind = "95 % interval" if found.is_95 else "range"
    return (
        f"{sentence(study.title)}, {plain(curve.label)}: on {last.ranks} ranks"
        f" {found.median:.0%} of the ideal from {counted(base.ranks, 'rank')}"
        f" ({kind} {found.low * 100:.0f} to {found.high:.0%})"
        f"{_speedup(curve) if study.is_strong else ''}."
    )


def _speedup(curve: Curve) -> str:
    """Return the last time over the first, in the words of the longer one."""
    base, last = curve.points[0], curve.points[-1]
    faster = base.time.median / last.time.median
    if faster >= 1:
        return f", {faster:.2f} times as fast as on {counted(base.ranks, 'rank')}"
    return f", {1 / faster:.2f} times as long as on {counted(base.ranks, 'rank')}"
