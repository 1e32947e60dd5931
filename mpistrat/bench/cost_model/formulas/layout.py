"""`Layout`: how many ranks there are and on how many nodes, as the kernels see it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Layout", "Node", "layout_of"]


@dataclass(frozen=True)
class Node:
    """A full node.

    Attributes
    ----------
    ranks
        How many it has room for.
    domains
        How many NUMA domains they are on: equally many ranks on each if the node is full. A node
        with fewer ranks fills one domain before the next.
    """

    ranks: int
    domains: int = 1


@dataclass(frozen=True)
class Layout:
    """Ranks on nodes, as evenly as possible (kernels/wire/topology.h).

    Attributes
    ----------
    ranks
        P.
    nodes
        p.
    domains
        How many NUMA domains of the fullest node have ranks.
    """

    ranks: int
    nodes: int
    domains: int = 1

    def __post_init__(self) -> None:
        """Raise `ValueError` unless each node and each domain has a rank."""
        if not 1 <= self.nodes <= self.ranks:
            raise ValueError(f"{self.ranks} ranks on {self.nodes} nodes: expected a rank on each")
        if not 1 <= self.domains <= self.most:
            raise ValueError(
                f"{self.most} ranks of a node in {self.domains} NUMA domains: expected a rank in"
                " each, and at least one domain"
            )

    @property
    def lanes(self) -> int:
        """How many ranks of each node carry data between nodes: as many as the least has."""
        return self.ranks // self.nodes

    @property
    def most(self) -> int:
        """The ranks of the fullest node."""
        return -(-self.ranks // self.nodes)

    @property
    def node(self) -> Node:
        """The fullest node."""
        return Node(self.most, self.domains)

    def __str__(self) -> str:
        """Say it as messages do."""
        nodes = f"{self.nodes} node{'s' if self.nodes > 1 else ''}"
        domains = f", {self.domains} NUMA domains each" if self.domains > 1 else ""
        return f"{self.ranks} rank{'s' if self.ranks > 1 else ''} on {nodes}{domains}"


def layout_of(ranks: int, node: Node) -> Layout:
    """Return the layout of `ranks` ranks on as few such nodes as hold them."""
    nodes = -(-ranks // node.ranks)
    most = -(-ranks // nodes)
    room = -(-node.ranks // node.domains)  # of the largest domain
    return Layout(ranks, nodes, -(-most // room))
