"""Read the times of collectives from result files, repeats together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from mpistrat.bench.cost_model.fitting.run_layout import layout_of_run
from mpistrat.bench.cost_model.formulas.layout import Layout
from mpistrat.bench.cost_model.formulas.library import OPS
from mpistrat.bench.results.point import Point
from mpistrat.errors import UsageError

__all__ = ["OVER_REPEATS", "Measured", "check_sizes", "collectives_of", "command_for"]

OVER_REPEATS: Mapping[str, Callable[[Sequence[float]], float]] = {"median": median, "least": min}
"""What stands for the repeats of a measurement; "least" on machines that others use, too."""

_LEAST, _LEAST_SIZES = 5, 3  # of each level
_ALIKE = ("barrier", "bcast")  # without a dtype; always in place
_BACKENDS = ("auto", "shm", "hierarchical")  # whose algorithms the formulas are


@dataclass(frozen=True)
class Measured:
    """The time of one collective.

    Attributes
    ----------
    op, nbytes, layout
        What was called, where.
    time_s
        Median of the rounds; of repeats see `OVER_REPEATS`.
    """

    op: str
    nbytes: int
    layout: Layout
    time_s: float

    def __str__(self) -> str:
        """Say what was measured, for tables."""
        return f"{self.op} of {self.nbytes} B, {self.layout}"


def collectives_of(points: Sequence[Point], over_repeats: str = "median") -> list[Measured]:
    """Return the collectives that points hold, of the dtype that most have, in place or not.

    Points that failed have nothing to read. Calls with registered, shared or new arrays, and those
    that MPI or other libraries carried, take other ways than those that have formulas.
    """
    found: dict[tuple[str, int, Layout], list[float]] = defaultdict(list)
    usable = [
        (one, layout_of_run(one, point.placement))
        for point in points
        if point.status == "ok"
        for one in _usable(point)
    ]
    kinds = Counter(_kind(one) for one, _ in usable if one["op"] not in _ALIKE)
    kind = kinds.most_common(1)[0][0] if kinds else None
    for one, layout in usable:
        if layout.ranks > 1 and (one["op"] in _ALIKE or _kind(one) == kind):
            found[one["op"], int(one["bytes"]), layout].append(one["time_us"]["median"] * 1e-6)
    best = OVER_REPEATS[over_repeats]
    every = [Measured(*what, best(times)) for what, times in found.items()]
    return [one for one in every if one.time_s > 0]


def command_for(ranks: int, nodes: int, file: str = "more.jsonl") -> str:
    """Return the command that measures collectives there."""
    hosts = "" if nodes == 1 else f" --host {','.join(f'HOST{i + 1}' for i in range(nodes))}"
    return (
        f"mpirun -n {ranks}{hosts} mpistrat bench collectives --ops all --bytes 8:4MiB:8"
        f" --json {file}"
    )


def check_sizes(measured: Sequence[Measured]) -> None:
    """Raise `UsageError` unless there are enough measurements, of enough sizes.

    A level has a latency and a bandwidth: both show only in several sizes.
    """
    if not measured:
        raise UsageError(
            "no time of a collective in these files; expected lines of bench collectives of at"
            f" least 2 ranks; measure some: {command_for(2, 1)}"
        )
    for is_far in (False, True):
        level = [one for one in measured if (one.layout.nodes > 1) == is_far]
        sizes = {one.nbytes for one in level if one.nbytes}
        if level and (len(sizes) < _LEAST_SIZES or len(level) < _LEAST):
            largest = level[0].layout
            raise UsageError(
                f"{largest}: {len(level)} measurements of {len(sizes)} sizes, which cannot tell"
                f" latency from bandwidth; expected {_LEAST} measurements of {_LEAST_SIZES} sizes"
                " or more, from some bytes to MiB;"
                f" measure more: {command_for(largest.ranks, largest.nodes)}"
            )


def _kind(one: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return what makes times of one call differ: dtype, and whether it was in place."""
    return one.get("dtype"), bool(one.get("in_place"))


def _usable(point: Point) -> list[dict[str, Any]]:
    if point.setup.case != "collectives":
        return []
    return [one for one in point.records if _has_formula(one)]


def _has_formula(one: Mapping[str, Any]) -> bool:
    is_ours = one.get("kind") == "backend" and one.get("backend") in _BACKENDS
    is_special = any(one.get(key) for key in ("registered", "shared"))
    is_new = str(one.get("side", "")).endswith(", new")
    return (
        is_ours
        and not (is_special or is_new)
        and one.get("op") in OPS
        and one.get("correct") is not False
    )
