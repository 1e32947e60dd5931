"""`Layout`: how many ranks there are and on how many nodes, as the kernels see it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Layout", "layout_of"]


@dataclass(frozen=True)
class Layout:
    """Ranks on nodes, as evenly as possible (kernels/wire/topology.h).

    Attributes
    ----------
    ranks
        P.
    nodes
        p.
    """

    ranks: int
    nodes: int

    def __post_init__(self) -> None:
        """Raise `ValueError` unless each node has a rank."""
        if not 1 <= self.nodes <= self.ranks:
            raise ValueError(f"{self.ranks} ranks on {self.nodes} nodes: expected a rank on each")

    @property
    def lanes(self) -> int:
        """How many ranks of each node carry data between nodes: as many as the least has."""
        return self.ranks // self.nodes

    @property
    def most(self) -> int:
        """The ranks of the fullest node."""
        return -(-self.ranks // self.nodes)

    def __str__(self) -> str:
        """Say it as messages do."""
        nodes = f"{self.nodes} node{'s' if self.nodes > 1 else ''}"
        return f"{self.ranks} rank{'s' if self.ranks > 1 else ''} on {nodes}"


def layout_of(ranks: int, ranks_per_node: int) -> Layout:
    """Return the layout of so many ranks where a node has room for `ranks_per_node`."""
    return Layout(ranks, -(-ranks // ranks_per_node))
