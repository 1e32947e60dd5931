"""Sentences about collectives, steps, parameter servers and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import geometric_mean

from mpistrat.bench.report.analysis.intervals import Interval
from mpistrat.bench.report.analysis.measurements import Measurement, groups
from mpistrat.bench.report.analysis.rates import bus_bandwidth, file_rate, server_value
from mpistrat.bench.report.analysis.step_shares import efficiency
from mpistrat.bench.report.units import factor, format_layout, format_size, format_time, plain

__all__ = ["collectives", "others", "steps"]


def collectives(measurements: Sequence[Measurement]) -> Iterator[str]:
    """Yield a sentence for each operation and side."""
    chosen = [m for m in measurements if m.get("kind") == "backend" and m.get("bytes")]
    found = groups(
        chosen, lambda m: (str(m.get("op")), m.side, m.ranks, m.nodes, str(m.get("dtype")))
    )
    for (op, side, ranks, nodes, _), members in sorted(found.items(), key=_order):
        members.sort(key=lambda m: int(m.get("bytes")))
        first = members[0]
        rates = [rate.median for m in members if (rate := bus_bandwidth(m))]
        yield (
            f"{plain(op)}, {plain(side)}, {format_layout(ranks, nodes)}:"
            f" {format_time(first.time.median)} at {format_size(int(first.get('bytes')))}, up to"
            f" {max(rates, default=0.0):.3g} GB/s of bus bandwidth{_over_peers(members)}."
        )


def _order(item: tuple[tuple[str, str, int, int, str], object]) -> tuple[bool, int]:
    """Sort what mpistrat chooses by itself before what a user could choose; large jobs first."""
    _, side, ranks, _, _ = item[0]
    return not side.startswith("auto"), -ranks


def _over_peers(members: Sequence[Measurement]) -> str:
    """Return the speedups over peers, a geometric mean over sizes for each."""
    speedups: dict[str, list[float]] = {}
    for m in members:
        for peer, ratio in m.over.items():
            if ratio.median > 0 and peer != "memcpy":
                speedups.setdefault(peer, []).append(ratio.median)
    told = [
        f"{factor(geometric_mean(ratios))} times as fast as {plain(peer)}"
        f" (geometric mean; {factor(min(ratios))} to {factor(max(ratios))} by size)"
        for peer, ratios in speedups.items()
    ]
    return "; ".join(["", *told])


def steps(measurements: Sequence[Measurement]) -> Iterator[str]:
    """Yield a sentence for each step that overlaps."""
    for m in measurements:
        if m.get("overlap") and m.get("kind") == "backend":
            over = [_ratio(peer, ratio) for peer, ratio in m.over.items()]
            yield (
                f"Step of {plain(m.get('model'))}, {plain(m.side)},"
                f" {format_layout(m.ranks, m.nodes)}: {format_time(m.time.median)}, efficiency"
                f" {efficiency(m):.0%}{'; ' if over else ''}{', '.join(over)}."
            )


def _ratio(peer: str, ratio: Interval) -> str:
    span = f" ({factor(ratio.low)} to {factor(ratio.high)} by run)" if ratio.runs > 1 else ""
    return f"{factor(ratio.median)} times as fast as {plain(peer)}{span}"


def others(measurements: Sequence[Measurement]) -> Iterator[str]:
    """Yield a sentence for each call of parameter servers, and for each checkpoint."""
    for m in measurements:
        if m.case == "ps" and m.side == "mpistrat" and m.get("kind") != "dense":
            unit = plain(m.get("unit")).replace("us a ", "µs a ")
            value = f"{server_value(m).median:.3g} {unit}"
            over = "; ".join(["", *(_ratio(peer, ratio) for peer, ratio in m.over.items())])
            yield f"Parameter servers, {plain(m.get('name'))}, {m.ranks} ranks: {value}{over}."
        if m.case == "io" and m.get("kind") != "bound":
            found = file_rate(m)
            rate = f"{found.median:.3g} GB/s" if found else format_time(m.time.median)
            yield f"Checkpoint {plain(m.get('op'))}, {format_layout(m.ranks, m.nodes)}: {rate}."
