"""Search the fastest settings within a node, for the case ``tune``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mpistrat.bench.tuning.comparison import NEVER, Bench, Trial
from mpistrat.collectives.backends.shared_memory import tuning_table
from mpistrat.collectives.backends.shared_memory.tuning import (
    CALLS,
    HALVES,
    Tuning,
    Tunings,
    from_entry,
)
from mpistrat.collectives.backends.shm import ShmBackend

__all__ = ["NodeSearch"]

_KIB, _MIB = 1 << 10, 1 << 20
_CHUNKS = (64 * _KIB, 128 * _KIB, 256 * _KIB)
_FLAT = tuple(2**power * _KIB for power in range(2, 9))
_WHOLE = tuple(2**power * _KIB for power in range(4, 17))
_REMOTE = tuple(2**power * _KIB for power in range(7, 15))
_REMOTE_CALLS = ("allreduce", "reduce_scatter", "allgather", "gather", "scatter", "alltoall")
_STREAMED = ("allreduce", "reduce", "bcast", "allgather", "gather")
_STREAM = tuple(2**power * _MIB for power in range(1, 8))


class NodeSearch:
    """Search the tunings of `names`, kinds of call, for this number of ranks on a machine."""

    names: tuple[str, ...] = (*CALLS, "allreduce" + HALVES)

    def __init__(self, bench: Bench, backend: ShmBackend) -> None:
        self._bench, self._backend = bench, backend
        self.key = tuning_table.node_key(backend.size)

    def parsed(self, entry: Any) -> Tunings:
        """Return the tunings of a table's entry; raise `ValueError` if it is none."""
        return from_entry(entry)

    def best(self, name: str) -> Tuning:
        """Measure, and return the fastest tuning for one kind of call. **Collective.**"""
        num_ranks, call = self._backend.size, name.removesuffix(HALVES)
        trial = Trial[Tuning](
            self._bench, lambda way: self._backend.tune({name: way}), call, halves=call != name
        )
        # the kernels time remote reads at run time (kernels/shm/reduction/algorithm_choice.h)
        is_timed = call == "allreduce"
        best = Tuning(remote_bytes=NEVER) if is_timed else Tuning()
        # The chunk first: the limits below are measured with it.
        for nbytes in _CHUNKS:
            best = trial.better(4 * _MIB, best, replace(best, chunk_bytes=nbytes))
        if call in ("allreduce", "reduce"):
            if num_ranks == 2:  # only two ranks reduce whole chunks, and need no flat algorithm
                best = replace(best, whole_bytes=trial.last(best, "whole_bytes", _WHOLE))
            else:
                flat_bytes = trial.last(best, "flat_bytes", _FLAT, num_ranks)
                best = replace(best, flat_bytes=flat_bytes)
        if call in _STREAMED:
            best = replace(best, stream_bytes=trial.first(best, "stream_bytes", _STREAM))
        if is_timed:
            best = replace(best, remote_bytes=0)
        elif call in _REMOTE_CALLS:
            best = replace(best, remote_bytes=trial.first(best, "remote_bytes", _REMOTE))
        return best
