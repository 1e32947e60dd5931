"""Count what the ranks of one node do in shared memory (kernels/shm), of `ranks` ranks.

Long arrays go by chunks. In a step a rank writes a chunk to its slot, waits until all have, and
reads what it needs; the chunks overlap, so each costs one step and the last one more
(kernels/shm/exchange.h).
"""

from __future__ import annotations

import math

from mpistrat.bench.cost_model.formulas.counts import Counts

__all__ = ["on_node"]

# The built-in sizes of kernels/shm/default_tuning.h.
_CHUNK_BYTES = 256 << 10
_FLAT_BYTES = 64 << 10
_WHOLE_BYTES = 128 << 10


def on_node(op: str, nbytes: float, ranks: int) -> Counts:
    """Return the counts of one call on one node; `nbytes` is as ``bench collectives`` has it."""
    if ranks == 1:
        return Counts()
    if op == "barrier":
        return Counts(steps=1)
    if op in {"allreduce", "reduce"}:
        return _reduction(op, nbytes, ranks)
    others = (ranks - 1) / ranks * nbytes
    copied, reduced = {
        "reduce_scatter": (nbytes, nbytes),  # to its slot; its block of all slots
        "bcast": (nbytes, 0.0),  # the readers, while the root writes the next chunk
        "allgather": (nbytes, 0.0),
        "gather": (nbytes, 0.0),  # by the root
        "scatter": (nbytes, 0.0),
        "alltoall": (nbytes + others, 0.0),
    }[op]
    return Counts(steps=_steps(nbytes), copied=copied, reduced=reduced)


def _reduction(op: str, nbytes: float, ranks: int) -> Counts:
    """Count FlatReduction, WholeReduction or ChunkedReduction (kernels/shm/reduction)."""
    if nbytes * ranks <= _FLAT_BYTES and ranks > 2:
        return Counts(steps=1, copied=nbytes, reduced=ranks * nbytes)
    if ranks == 2 and nbytes <= _WHOLE_BYTES:
        return Counts(steps=1, copied=nbytes, reduced=nbytes)
    results = (ranks - 1) / ranks * nbytes  # of the other ranks' slices
    return Counts(steps=_steps(nbytes), copied=nbytes + results, reduced=nbytes)


def _steps(nbytes: float) -> int:
    return max(math.ceil(nbytes / _CHUNK_BYTES), 1) + (nbytes > _CHUNK_BYTES)
