"""The results in a few sentences, for the top of the page and for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import geometric_mean

from mpistrat.bench.report.analysis.measurements import Measurement, groups, wrong_answers
from mpistrat.bench.report.analysis.scaling_curves import Study, studies
from mpistrat.bench.report.units import (
    counted,
    format_layout,
    format_size,
    format_time,
    plain,
    sentence,
)
from mpistrat.bench.results.point import Point

__all__ = ["headline"]


_MOST_COLLECTIVES = 8


def headline(points: Sequence[Point], measurements: Sequence[Measurement]) -> list[str]:
    """Return sentences about all results, the most important first."""
    found = [_counted(points, measurements), *_oversubscribed(points)]
    found += [_scaling(study) for study in studies(measurements)]
    collectives = list(_collectives(_largest_jobs(measurements, "collectives")))
    found += collectives[:_MOST_COLLECTIVES]
    found += _steps(_largest_jobs(measurements, "step"))
    found += _others(_largest_jobs(measurements, "ps") + _largest_jobs(measurements, "io"))
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
    parts += [f"{counted(failed, 'run')} failed"] if failed else []
    parts += [counted(wrong, "wrong answer")] if wrong else []
    return "; ".join(parts) + "."


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
    span = f"{last.efficiency.low:.0%} to {last.efficiency.high:.0%}"
    speedup = f", {base.time.median / last.time.median:.2f} times as fast"
    return (
        f"{sentence(study.title)}, {plain(curve.label)}: efficiency {last.efficiency.median:.0%}"
        f" ({span}) on {last.ranks} ranks over {base.ranks}{speedup if study.is_strong else ''}."
    )


def _collectives(measurements: Sequence[Measurement]) -> Iterator[str]:
    chosen = [m for m in measurements if m.get("kind") == "backend" and m.get("bytes")]
    found = groups(
        chosen, lambda m: (str(m.get("op")), m.side, m.ranks, m.nodes, str(m.get("dtype")))
    )
    for (op, side, ranks, nodes, _), members in sorted(found.items(), key=_order):
        members.sort(key=lambda m: int(m.get("bytes")))
        first, best = members[0], max(members, key=lambda m: float(m.get("busbw_GBps") or 0))
        yield (
            f"{plain(op)}, {plain(side)}, {format_layout(ranks, nodes)}:"
            f" {format_time(first.time.median)} at {format_size(int(first.get('bytes')))}, up to"
            f" {best.get('busbw_GBps') or 0:.3g} GB/s of bus bandwidth{_over_peers(members)}."
        )


def _order(item: tuple[tuple[str, str, int, int, str], object]) -> tuple[bool, int]:
    """Sort what mpistrat chooses by itself before what a user could choose; large jobs first."""
    _, side, ranks, _, _ = item[0]
    return not side.startswith("auto"), -ranks


def _over_peers(members: Sequence[Measurement]) -> str:
    """Return the speedups over peers, a geometric mean over sizes for each."""
    speedups: dict[str, list[float]] = {}
    for m in members:
        for peer, ratio in (m.get("speedup") or {}).items():
            if ratio > 0 and peer != "memcpy":
                speedups.setdefault(peer, []).append(float(ratio))
    told = [
        f"{geometric_mean(ratios):.2f} times as fast as {plain(peer)}"
        f" (geometric mean; {min(ratios):.2f} to {max(ratios):.2f} by size)"
        for peer, ratios in speedups.items()
    ]
    return "; ".join(["", *told])


def _steps(measurements: Sequence[Measurement]) -> Iterator[str]:
    for m in measurements:
        if m.get("overlap") and m.get("kind") == "backend":
            over = [
                f"{x:.2f} times as fast as {plain(p)}" for p, x in m.get("speedup", {}).items()
            ]
            yield (
                f"Step of {plain(m.get('model'))}, {plain(m.side)},"
                f" {format_layout(m.ranks, m.nodes)}: {format_time(m.time.median)}, efficiency"
                f" {m.get('efficiency') or 0:.0%}{'; ' if over else ''}{', '.join(over)}."
            )


def _others(measurements: Sequence[Measurement]) -> Iterator[str]:
    for m in measurements:
        if m.case == "ps" and m.side == "mpistrat" and m.get("kind") != "dense":
            unit = plain(m.get("unit")).replace("us a ", "µs a ")
            value = f"{m.get('median')[m.side]:.3g} {unit}"
            yield f"Parameter servers, {plain(m.get('name'))}, {m.ranks} ranks: {value}."
        if m.case == "io" and m.get("kind") != "bound":
            rate = f"{m.get('GBps') or 0:.3g} GB/s"
            yield f"Checkpoint {plain(m.get('op'))}, {format_layout(m.ranks, m.nodes)}: {rate}."
