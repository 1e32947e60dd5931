"""Search the fastest message sizes between nodes, for the case ``tune``.

An all-reduce shows the cost of a long message. A ring begins to pay at another size for each kind
of call, so the sum of their times decides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mpistrat.bench.tuning.comparison import Bench, Trial
from mpistrat.collectives.backends.hierarchical import HierarchicalBackend
from mpistrat.collectives.backends.shared_memory import tuning_table
from mpistrat.collectives.backends.shared_memory.tuning import WIRE, WireTuning, wire_from_entry

__all__ = ["WireSearch"]

_KIB, _MIB = 1 << 10, 1 << 20
_SHORT = tuple(2**power * _KIB for power in range(5))
_RING = tuple(2**power * _KIB for power in range(9))
# A little below powers of two: what fits in 64 KiB with an MPI library's head goes at once.
_RING_MOST = tuple(kib * _KIB for kib in (28, 60, 124, 252, 508))
_CALLS = ("allreduce", "reduce_scatter", "bcast")
_LONG_BYTES = 2 * _MIB  # for each lane and node: cut in four, a message has the longest of these
# Of an array: every rank has two, and many lanes on many nodes would make them gigabytes.
_MOST_BYTES = 64 * _MIB


class WireSearch:
    """Search the message sizes for this number of nodes and of ranks on them, by float32 calls."""

    names: tuple[str, ...] = (WIRE,)

    def __init__(self, bench: Bench, backend: HierarchicalBackend) -> None:
        nodes = backend.nodes
        self._blocks = nodes.lanes * nodes.count
        self._long = Trial[WireTuning](bench, backend.tune_wire, "allreduce")
        self._all = Trial[WireTuning](bench, backend.tune_wire, *_CALLS)
        self.key = tuning_table.wire_key(nodes.lanes, nodes.count)

    def parsed(self, entry: Any) -> dict[str, WireTuning]:
        """Return the tunings of a table's entry; raise `ValueError` if it is none."""
        return {WIRE: wire_from_entry(entry)}

    def best(self, _name: str) -> WireTuning:
        """Measure, and return the fastest tuning. **Collective.**"""
        best = WireTuning().filled()
        for nbytes in _RING_MOST:
            if nbytes != best.ring_most_bytes:
                other = replace(best, ring_most_bytes=nbytes)
                best = self._long.better(self._length(_LONG_BYTES), best, other)
        # A tuning with ring_most_bytes below ring_bytes is refused.
        rings = [nbytes for nbytes in _RING if nbytes <= best.ring_most_bytes]
        best = self._all.stepwise(
            best, "ring_bytes", rings, lambda old, new: self._length(min(old, new))
        )
        return self._all.stepwise(best, "short_bytes", _SHORT, max)

    def _length(self, nbytes: int) -> int:
        """Return the bytes of an array with `nbytes` for each lane and node."""
        return min(nbytes * self._blocks, _MOST_BYTES)
