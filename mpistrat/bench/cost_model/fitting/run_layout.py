"""Tell where the ranks of a run were, by its record and placement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mpistrat.bench.cost_model.formulas.layout import Layout
from mpistrat.bench.results.point import Placement

__all__ = ["layout_of_run"]


def layout_of_run(record: Mapping[str, Any], placement: Sequence[Placement]) -> Layout:
    """Return the layout of a record, with the NUMA domains of the node whose ranks are in most.

    It is one domain where a rank is in several or in none that is known, as what it reads is near
    or far; and where the nodes of the record are none of the machines (MPISTRAT_NODE_SIZE).
    """
    layout = Layout(int(record["ranks"]), int(record["nodes"]))
    machines: dict[str, set[int]] = defaultdict(set)
    for one in placement:
        machines[one.host].update(one.domains)
    is_bound = all(len(one.domains) == 1 for one in placement)
    if not is_bound or len(machines) != layout.nodes:
        return layout
    domains = max(len(one) for one in machines.values())
    return replace(layout, domains=min(domains, layout.most))
