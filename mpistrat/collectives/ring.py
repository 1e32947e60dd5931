"""Reduce and gather around a ring of ranks: each sends to the next and hears from the one before.

Per rank (p - 1)/p of the data go out and come in, in p - 1 messages each way: the least that is
possible. MPI libraries mostly choose other algorithms by default, for which the wire is too slow.
The order of a block's reduction is that of the ring, and ends with the rank that gets it. Several
calls may be under way at a time, with tags of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpistrat.collectives.base import Request, Steps
from mpistrat.collectives.mpi import MpiBackend
from mpistrat.collectives.shm import reduce_arrays
from mpistrat.types import Array

__all__ = ["Ring", "tag_of"]

_FIRST_TAG, _NUM_TAGS = 16, 4096


def tag_of(call: int) -> int:
    """Return the tag of one of the calls that are under way at a time."""
    return _FIRST_TAG + call % _NUM_TAGS


class Ring:
    """The ranks of `mpi` in a circle. Blocks of no elements are not sent."""

    def __init__(self, mpi: MpiBackend) -> None:
        self._mpi = mpi
        self.rank, self.size = mpi.rank, mpi.size

    def _send(self, block: Array, call: int) -> Request:
        return self._mpi.isend(block, (self.rank + 1) % self.size, tag_of(call))

    def _receive(self, block: Array, call: int) -> Request:
        return self._mpi.irecv(block, (self.rank - 1) % self.size, tag_of(call))

    def reduce_scatter(
        self, call: int, sources: Sequence[Array], into: Array, op: str, divisor: int
    ) -> Steps:
        """Reduce block i of all ranks' `sources` into rank i's `into`.

        `into` may be this rank's own block, or of a dtype to round to.
        """
        sent = []
        partial = sources[(self.rank - 1) % self.size]
        for step in range(1, self.size):
            if partial.size:
                sent.append(self._send(partial, call))
            own = sources[(self.rank - 1 - step) % self.size]
            partial = np.empty(own.size, own.dtype)
            if own.size == 0:
                continue
            yield self._receive(partial, call)
            if step < self.size - 1:
                reduce_arrays(partial, [partial, own], op)
            else:
                _finish([partial, own], into, op, divisor)
        yield from sent

    def allgather(self, call: int, blocks: Sequence[Array]) -> Steps:
        """Copy block i of rank i into every rank's block i."""
        order = [blocks[(self.rank - step) % self.size] for step in range(self.size)]
        coming = [self._receive(block, call) if block.size else None for block in order[1:]]
        sent = []
        for block, request in zip(order[:-1], [None, *coming[:-1]], strict=True):
            if request is not None:
                yield request
            if block.size:
                sent.append(self._send(block, call))
        if coming[-1] is not None:
            yield coming[-1]
        yield from sent


def _finish(sources: Sequence[Array], into: Array, op: str, divisor: int) -> None:
    if into.dtype == sources[0].dtype:
        reduce_arrays(into, sources, op, divisor)
    else:
        reduce_arrays(sources[0], sources, op, divisor)
        into[:] = sources[0]
