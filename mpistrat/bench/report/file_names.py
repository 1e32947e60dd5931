"""Names of figures by their content: short, and each of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from mpistrat.bench.report.section import Figure, Section

__all__ = ["layout_parts", "named", "with_unique_names"]

_MOST = 70


def named(*parts: object) -> str:
    """Return a name of letters, digits and hyphens; parts that are empty are left out."""
    words = [re.sub(r"[^a-z0-9]+", "-", str(part).lower()).strip("-") for part in parts if part]
    return "-".join(word for word in words if word)[:_MOST].rstrip("-") or "figure"


def layout_parts(ranks: int, nodes: int) -> list[str]:
    """Return the parts of a name that tell ranks and, of several, nodes."""
    told = [f"{ranks}-ranks" if ranks != 1 else "1-rank"]
    return told + ([f"{nodes}-nodes"] if nodes > 1 else [])


def with_unique_names(sections: Iterable[Section]) -> list[Section]:
    """Return sections in which no two figures have the same name: the second gets a number."""
    taken: set[str] = set()
    return [replace(one, figures=_numbered(one.figures, taken)) for one in sections]


def _numbered(figures: Sequence[Figure], taken: set[str]) -> list[Figure]:
    found = []
    for figure in figures:
        name, number = figure.name, 2
        while name in taken:
            name, number = f"{figure.name}-{number}", number + 1
        taken.add(name)
        found.append(replace(figure, name=name))
    return found
