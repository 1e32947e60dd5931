"""The gate's lines between nodes: compared in shared memory on each, and by the nodes' leaders.

With payloads the leaders gather all lines. Without, they first take the least and the greatest of
each word, 64 bytes in all whatever the number of ranks; only if these are not equal do the lines
themselves go round.
"""

from __future__ import annotations

import numpy as np

from mpistrat.collectives.base import HEAD_BYTES, Request, Steps
from mpistrat.collectives.mpi import MpiBackend
from mpistrat.collectives.nodes import Nodes
from mpistrat.collectives.shm import ShmBackend
from mpistrat.collectives.stages import Stage

__all__ = ["Lines"]


class Lines:
    """The line of a rank, and the table of all.

    Parameters
    ----------
    nodes
        Who is where.
    node
        The ranks of this node; None if there is no other.
    leaders
        The first ranks of all nodes; None on the others.
    nbytes
        Length of a line.
    """

    def __init__(
        self, nodes: Nodes, node: ShmBackend | None, leaders: MpiBackend | None, nbytes: int
    ) -> None:
        self._nodes, self._node, self._leaders = nodes, node, leaders
        if node is None:
            self.line = np.zeros(nbytes, np.uint8)
            self._local = self.line[None]
        else:
            self.line, self._local = node.open_gate(nbytes)
        order = [rank for group in nodes.groups for rank in group]
        self._order = np.array(order)
        self._counts = [len(group) * nbytes for group in nodes.groups]
        self.table = np.zeros((len(order), nbytes), np.uint8)
        self._by_node = np.empty_like(self.table)

    def post(self) -> Request:
        """Show this rank's line; when complete, the table holds every rank's."""
        return Stage(self._exchange())

    def _exchange(self) -> Steps:
        if self._node is not None:
            yield self._node.post()
        if self.line.size > HEAD_BYTES or not (yield from self._are_all_equal()):
            yield from self._gather()
        else:
            self.table[:] = self.line

    def _are_all_equal(self) -> Steps:
        words = self._local[:, :HEAD_BYTES].copy().view(np.int64)
        least = np.concatenate([words.min(axis=0), (~words).min(axis=0)])  # ~ turns the order
        if self._leaders is not None:
            yield from self._leaders.allreduce(least, least, "min")
        if self._node is not None:
            yield from self._node.bcast(least, 0)
        return np.array_equal(least[:4], ~least[4:])

    def _gather(self) -> Steps:
        everyone = self._by_node.reshape(-1)
        if self._leaders is not None:
            mine = np.ascontiguousarray(self._local).reshape(-1)
            yield from self._leaders.allgather(mine, everyone, self._counts)
        if self._node is not None:
            yield from self._node.bcast(everyone, 0)
        self.table[self._order] = self._by_node
