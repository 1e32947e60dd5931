"""Count what the ranks of one node do in shared memory (kernels/shm).

Long arrays go by chunks. In a step a rank writes a chunk to its slot, waits until all have, and
reads what it needs; the chunks overlap, so each costs one step and the last one more
(kernels/shm/exchange.h). A slot is taken to be in the memory of its
rank's NUMA domain.
"""

from __future__ import annotations

import math

from mpistrat.bench.cost_model.formulas.counts import Counts
from mpistrat.bench.cost_model.formulas.layout import Node

__all__ = ["far_share", "on_node"]

# The built-in sizes of kernels/shm/default_tuning.h.
_CHUNK_BYTES = 256 << 10
_FLAT_BYTES = 64 << 10
_WHOLE_BYTES = 128 << 10


def on_node(op: str, nbytes: float, node: Node) -> Counts:
    """Return the counts of one call on one node; `nbytes` is as ``bench collectives`` has it."""
    if node.ranks == 1:
        return Counts()
    if op == "barrier":
        return _steps(1, node)
    if op in {"allreduce", "reduce"}:
        return _reduction(nbytes, node)
    others = (node.ranks - 1) / node.ranks * nbytes
    far = far_share(node) * others
    counts = {
        # A rank copies its array to its slot, and reduces its block of all slots.
        "reduce_scatter": Counts(copied=nbytes, far_bytes=far, reduced=nbytes),
        # They read while the root writes the next chunk; the last is in another domain.
        "bcast": Counts(copied=nbytes, far_bytes=nbytes if node.domains > 1 else 0.0),
        "allgather": Counts(copied=nbytes, far_bytes=far),
        "gather": Counts(copied=nbytes, far_bytes=far),  # by the root
        "scatter": Counts(copied=nbytes, far_bytes=far),
        "alltoall": Counts(copied=nbytes + others, far_bytes=far),
    }[op]
    return _steps(_chunk_steps(nbytes), node) + counts


def _reduction(nbytes: float, node: Node) -> Counts:
    """Count FlatReduction, WholeReduction or ChunkedReduction (kernels/shm/reduction)."""
    ranks, far = node.ranks, far_share(node)
    if nbytes * ranks <= _FLAT_BYTES and ranks > 2:
        reduced = ranks * nbytes
        return _steps(1, node) + Counts(
            copied=nbytes, far_bytes=far * (reduced - nbytes), reduced=reduced
        )
    if ranks == 2 and nbytes <= _WHOLE_BYTES:
        return _steps(1, node) + Counts(copied=nbytes, far_bytes=far * nbytes, reduced=nbytes)
    results = (ranks - 1) / ranks * nbytes  # of the other ranks' slices
    moved = Counts(copied=nbytes + results, far_bytes=2 * far * results, reduced=nbytes)
    return _steps(_chunk_steps(nbytes), node) + moved


def far_share(node: Node) -> float:
    """Return the share of the other ranks of the node that are in other NUMA domains."""
    return (node.ranks - node.ranks / node.domains) / (node.ranks - 1)


def _steps(count: int, node: Node) -> Counts:
    return Counts(steps=count) if node.domains == 1 else Counts(node_steps=count)


def _chunk_steps(nbytes: float) -> int:
    return max(math.ceil(nbytes / _CHUNK_BYTES), 1) + (nbytes > _CHUNK_BYTES)
