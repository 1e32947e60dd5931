"""Fit input, waiting, checkpoints and start-up, which have no formula, to the number of ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from mpistrat.bench.cost_model.fitting.normal_form import NormalForm, fit_normal_form
from mpistrat.bench.cost_model.readable import bytes_text
from mpistrat.bench.results.point import Point

__all__ = ["other_parts"]


def other_parts(points: Sequence[Point]) -> dict[str, NormalForm]:
    """Return each part's seconds as a function of the ranks, where points hold it.

    Steps are those of weak scaling, in which the work of a rank does not change with the ranks.
    """
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        if point.status == "ok":
            for what, seconds in _parts(point):
                found[what][point.setup.ranks].append(seconds)
    return {
        what: fit_normal_form({ranks: median(all_of) for ranks, all_of in by_ranks.items()})
        for what, by_ranks in found.items()
    }


def _parts(point: Point) -> Iterator[tuple[str, float]]:
    """Yield the parts of one run, above 0."""
    for one in point.records:
        if one.get("kind", "backend") != "backend" or one.get("correct") is False:
            continue
        if point.setup.case == "weak":
            parts = one["parts_us"]
            for part in ("input", "compute", "idle"):
                if parts[part] > 0:
                    yield f"{part} of a step of {one['network']}", parts[part] * 1e-6
        elif point.setup.case == "io":
            size = bytes_text(one["bytes"])
            yield f"checkpoint {one['op']} of {size}", one["time_us"]["median"] * 1e-6
        elif point.setup.case == "startup":
            yield "start of the ranks, to their first collective", one["time_us"]["median"] * 1e-6
