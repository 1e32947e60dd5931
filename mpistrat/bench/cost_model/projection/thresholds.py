"""Find the number of ranks from which on something is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mpistrat.bench.cost_model.formulas.layout import Layout, Node

__all__ = ["MOST_RANKS", "first_layout", "layouts_up_to"]

MOST_RANKS = 100_000
_STEP = 1.03  # between numbers of nodes that are tried


def layouts_up_to(node: Node, most_ranks: int = MOST_RANKS) -> Iterator[Layout]:
    """Yield layouts of full nodes, from two nodes to the most ranks, about 3 % apart."""
    most = max(most_ranks // node.ranks, 2)
    nodes = 2
    while nodes < most:
        yield Layout(nodes * node.ranks, nodes, node.domains)
        nodes = max(nodes + 1, int(nodes * _STEP))
    yield Layout(most * node.ranks, most, node.domains)


def first_layout(holds: Callable[[Layout], bool], node: Node) -> Layout | None:
    """Return the layout of fewest nodes from which on `holds`; None if not for the most ranks."""
    tried = list(layouts_up_to(node))
    found, below = None, 1
    for layout in reversed(tried):
        if not holds(layout):
            below = layout.nodes
            break
        found = layout
    while found is not None and found.nodes - below > 1:
        nodes = (found.nodes + below) // 2
        between = Layout(nodes * node.ranks, nodes, node.domains)
        found, below = (between, below) if holds(between) else (found, nodes)
    return found
