"""All-reduce of arrays on GPUs: mpistrat's carriers, MPI over the host, NCCL, and their bound.

The bound of P ranks that share one GPU: each of the P arrays of n bytes has to be read at least
once, and each of the P results written, all by one memory. So no all-reduce is faster than a copy
that reads P n bytes and writes as many, which rank 0 makes alone: ``share = copy's time / time``.
Ranks with a GPU each have no such bound; busbw says what their links carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.gpu.allreduce_sides import (
    REGISTERED,
    GpuBuffers,
    carrier_sides,
    copy_of_all,
    peer_sides,
    registered_side,
)
from mpistrat.bench.gpu.bars import Bar, allreduce_bars
from mpistrat.bench.gpu.ranks import GpuSession
from mpistrat.bench.harness.calibration import Budget
from mpistrat.bench.harness.expected_results import Task
from mpistrat.bench.harness.row import Heading, Row, run_row
from mpistrat.bench.harness.session import Session

__all__ = ["AllreduceRow", "measure_allreduce"]

_SHARE_OF_MEMORY = 0.8


@dataclass(frozen=True)
class AllreduceRow:
    """The figures of one size.

    Attributes
    ----------
    row
        Times, algbw and busbw.
    is_shared
        Whether all ranks use one GPU; then the last side is the bound.
    """

    row: Row
    is_shared: bool

    def share(self, index: int) -> float | None:
        """Return which share of the bound a side reaches; None where there is no bound."""
        timings = self.row.timings
        return timings[index].speedup(timings[-1]) if self.is_shared else None

    def over(self, index: int, base: str) -> float:
        """Return how many times faster a side is than another one; 0 if that was not measured."""
        return self.row.speedups(index).get(base, 0.0)

    def bars(self, index: int) -> list[Bar]:
        """Return the bars of a side: of mpistrat's own choice, where ranks share a GPU."""
        share, task = self.share(index), self.row.task
        is_ours = self.row.labels[index].text in ("auto", REGISTERED)
        if not is_ours or share is None or task.size == 1:
            return []
        time_us = self.row.timings[index].median_us
        return allreduce_bars(task.nbytes, time_us, share, self.over(index, "staged"))

    def records(self, *, has_bars: bool) -> list[dict[str, Any]]:
        """Return a record for each side, for the JSON lines."""
        records = self.row.records()
        for index, record in enumerate(records):
            share = self.share(index)
            record |= {
                "part": "allreduce",
                "registered": self.row.labels[index].text == REGISTERED,
                "share_of_bound": None if share is None else round(share, 4),
                "bars": [bar.record() for bar in self.bars(index)] if has_bars else [],
            }
        return records


def measure_allreduce(
    session: GpuSession, sizes: Sequence[int], budget: Budget, say: Callable[[str], None]
) -> Iterator[AllreduceRow]:
    """Yield the figures of a float32 sum of each size; `say` which do not fit. **Collective.**"""
    communicator = session.communicator
    for nbytes in sizes:
        # All ranks' inputs and results, if they share the GPU, twice, and the sides of one copy.
        needed, free = 6 * communicator.size * nbytes, _free_bytes(communicator)
        if needed > free * _SHARE_OF_MEMORY:
            say(f"allreduce of {nbytes} bytes: left out, it takes {needed} bytes, {free} are free")
            continue
        place = (communicator.rank, communicator.size)
        task = Task("allreduce", np.dtype(np.float32), "sum", nbytes, *place)
        buffers = GpuBuffers.of_the_pool(task)
        sides = carrier_sides(session.carriers, buffers) + peer_sides(session, buffers)
        if session.is_shared:
            sides += [registered_side(session.carriers["auto"], task), copy_of_all(task)]
        plain = Session(communicator, {}, [])
        yield AllreduceRow(
            run_row(Heading("gpu", task), sides, [], plain, budget), session.is_shared
        )


def _free_bytes(communicator: Communicator) -> int:
    """Return the least free memory of any rank's GPU. **Collective.**"""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    # All have given back what they do not use, before any one looks.
    communicator.barrier()
    return int(min(communicator.allgather_object(cupy.cuda.runtime.memGetInfo()[0])))
