"""Collectives of one operation, dtype and layout: which there are, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from mpistrat.bench.report.analysis.measurements import Measurement, groups, options_of
from mpistrat.bench.report.file_names import layout_parts
from mpistrat.bench.report.units import format_layout, plain

__all__ = ["FAMILIES", "Family", "families", "name_parts", "title_of"]

Family: TypeAlias = Sequence[Measurement]

FAMILIES = ("collectives",)
"""The cases whose records are of one operation and one size."""

_FIRST = ("allreduce", "reduce_scatter", "allgather", "bcast")  # what training uses most


def families(measurements: Sequence[Measurement]) -> list[Family]:
    """Return the measurements of each operation, dtype and layout; the largest jobs come first."""
    chosen = [m for m in measurements if m.case in FAMILIES and m.interval and m.get("bytes")]
    found = groups(chosen, _family_key)
    by_op = groups(found.values(), lambda family: str(family[0].get("op")))
    order: list[tuple[int, int, Family]] = []
    for op, members in by_op.items():
        members.sort(key=lambda family: (-family[0].ranks, -family[0].nodes))
        place = _FIRST.index(op) if op in _FIRST else len(_FIRST)
        order += [(turn, place, family) for turn, family in enumerate(members)]
    order.sort(key=lambda one: one[:2])
    return [family for _, _, family in order]


def title_of(family: Family) -> str:
    """Return what was measured as a line."""
    first = family[0]
    kind = [str(first.get("op")), *([first.get("reduction")] if first.get("reduction") else [])]
    what = [" ".join(kind), str(first.get("dtype", "")), format_layout(first.ranks, first.nodes)]
    flags = [name for name in ("in_place", "registered", "shared") if first.get(name)]
    options = _other_options(first)
    return plain(", ".join([*what, *(flag.replace("_", " ") for flag in flags), *options]), 120)


def name_parts(m: Measurement) -> list[object]:
    """Return what distinguishes an operation's file name; what is usual is left out."""
    usual = ("sum", "float32")
    kind = [m.get(one) for one in ("reduction", "dtype") if m.get(one) not in usual]
    flags = [name for name in ("in_place", "registered", "shared") if m.get(name)]
    flags = [flag for flag in flags if (flag, m.get("op")) != ("in_place", "bcast")]
    return [m.get("op"), *kind, *layout_parts(m.ranks, m.nodes), *flags, *_other_options(m)]


def _family_key(m: Measurement) -> tuple[Any, ...]:
    names = ("op", "dtype", "reduction", "in_place", "registered", "shared")
    layout = (m.ranks, m.nodes)
    return *(str(m.get(name)) for name in names), *layout, *_other_options(m)


def _other_options(m: Measurement) -> list[str]:
    """Return the options that a record does not tell in its own words."""
    told = ("--ops", "--bytes", "--dtypes", "--peers", "--backends", "--in-place", "--registered")
    parts = [f"--{one}".strip() for one in options_of(m.point).split("--") if one]
    return [one for one in parts if not one.startswith((*told, "--shared", "--reduction"))]
