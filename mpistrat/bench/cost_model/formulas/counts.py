"""`Counts`: how often an algorithm does what costs time, and the names of these costs."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

import numpy as np

from mpistrat.types import Array

__all__ = ["DOMAINS", "LATENCY", "NAMES", "NETWORK", "ON_NODE", "UNITS", "VOLUME", "Counts"]


@dataclass(frozen=True)
class Counts:
    """What one call costs, in the terms of LogGP for each level; times are `counts @ parameters`.

    All counts are those of the rank that has most to do, or of the path that takes longest.

    Attributes
    ----------
    messages
        Messages between nodes, each of which begins when the one before has arrived: α = L + 2o
        of LogGP.
    sends
        Messages between nodes that a rank hands to the network besides: g.
    wire_bytes
        Bytes through one direction of a node's link, of all ranks of the node: G.
    steps
        Times that ranks of one NUMA domain wait for each other in shared memory: α of the domain.
    node_steps
        The same where the ranks of a node are in several domains, instead of `steps`: α of the
        node.
    copied
        Bytes that a rank copies in shared memory: G of the domain.
    far_bytes
        Those that it reads from another domain's memory; their cost comes on top of that of
        `copied` and `reduced`: G of the node.
    reduced
        Bytes that a rank combines with others: γ.

    References
    ----------
    Alexandrov, Ionescu, Schauser, Scheiman: LogGP. SPAA 1995, doi 10.1145/215399.215427. Thakur,
    Rabenseifner, Gropp: Optimization of collective communication operations in MPICH. IJHPCA 2005,
    doi 10.1177/1094342005051521.
    """

    messages: float = 0
    sends: float = 0
    wire_bytes: float = 0
    steps: float = 0
    node_steps: float = 0
    copied: float = 0
    far_bytes: float = 0
    reduced: float = 0

    def __add__(self, other: Counts) -> Counts:
        """Return those of both, one after the other."""
        mine, theirs = astuple(self), astuple(other)
        return Counts(*(a + b for a, b in zip(mine, theirs, strict=True)))

    def __mul__(self, factor: float) -> Counts:
        """Return `factor` times as many of each."""
        return Counts(*(factor * one for one in astuple(self)))

    def only(self, *names: str) -> Counts:
        """Return the counts of these names, and 0 of the others."""
        return Counts(**{name: getattr(self, name) for name in names})

    def vector(self) -> Array:
        """Return them in the order of `NAMES`."""
        return np.array(astuple(self), np.float64)


NAMES = tuple(field.name for field in fields(Counts))
NETWORK = ("messages", "sends", "wire_bytes")
ON_NODE = tuple(name for name in NAMES if name not in NETWORK)
DOMAINS = ("node_steps", "far_bytes")
"""Counts that are not 0 only where ranks of a node are in several NUMA domains."""
LATENCY = ("messages", "sends", "steps", "node_steps")
"""Costs of a call whatever its size."""
VOLUME = ("wire_bytes", "copied", "far_bytes", "reduced")
"""Costs of its bytes."""

UNITS = {
    "messages": ("network: latency and overhead of a message (L + 2o)", "us"),
    "sends": ("network: gap between messages (g)", "us"),
    "wire_bytes": ("network: a byte through a node's link (G)", "ns/byte"),
    "steps": ("node: a step within a NUMA domain (L + 2o)", "us"),
    "node_steps": ("node: a step of several NUMA domains (L + 2o)", "us"),
    "copied": ("node: a byte copied (G)", "ns/byte"),
    "far_bytes": ("node: a byte read from another NUMA domain, besides (G)", "ns/byte"),
    "reduced": ("node: a byte reduced (gamma)", "ns/byte"),
}
"""What a reader is told of each parameter: its title and its unit."""
