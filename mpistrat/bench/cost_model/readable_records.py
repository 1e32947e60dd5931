"""Leave out records of result files that do not have what the model reads of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mpistrat.bench.cost_model.fitting.measurements import collectives_of
from mpistrat.bench.cost_model.formulas.library import call
from mpistrat.bench.cost_model.projection.other_parts import other_parts
from mpistrat.bench.cost_model.projection.served import served_calls
from mpistrat.bench.cost_model.projection.step import measured_steps, step_work
from mpistrat.bench.results.point import Point

__all__ = ["left_out_text", "readable_points"]

_BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def readable_points(points: Sequence[Point]) -> tuple[list[Point], Counter[str]]:
    """Return points without records that cannot be read, and how many these were, by case."""
    kept, left = [], Counter[str]()
    for point in points:
        records = tuple(one for one in point.records if _is_readable(point, one))
        missing = len(point.records) - len(records)
        if missing:
            left[point.setup.case] += missing
        kept.append(point.model_copy(update={"records": records}) if missing else point)
    return kept, left


def left_out_text(left: Mapping[str, int]) -> str:
    """Return a line that says how many records were left out; empty if none was."""
    if not left:
        return ""
    counts = ", ".join(f"{count} of {case}" for case, count in sorted(left.items()))
    return (
        f"left out: records that cannot be read: {counts} (expected numbers of ranks, nodes, bytes"
        " and time, and at least as many ranks as nodes)"
    )


def _is_readable(point: Point, record: Mapping[str, Any]) -> bool:
    """Whether each part of the model can read the record, alone."""
    alone = [point.model_copy(update={"records": (record,)})]
    try:
        numbers = [
            *_numbers_of_collectives(alone),
            *_numbers_of_steps(alone),
            *(time for by_workers in served_calls(alone).values() for time in by_workers.values()),
            *(form.value(1) for form in other_parts(alone).values()),
        ]
    except _BROKEN:
        return False
    return all(math.isfinite(one) and one >= 0 for one in numbers)


def _numbers_of_collectives(points: Sequence[Point]) -> list[float]:
    found = collectives_of(points)
    counts = [call(one.op, one.nbytes, one.layout).vector().sum() for one in found]
    return [*counts, *(one.nbytes for one in found), *(one.time_s for one in found)]


def _numbers_of_steps(points: Sequence[Point]) -> list[float]:
    work, found = step_work(points), []
    for one in measured_steps(points):
        found += [one.work.nbytes - 1, one.time_s - 1e-12, one.work.hidden]
    return [*found, work.compute_s, work.input_s]
