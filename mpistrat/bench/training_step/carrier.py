"""The library that reduces a step's buckets: mpistrat here, MPI's own calls in bench/peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from mpistrat import Communicator, Work
from mpistrat.bench.training_step.dense_bucket import DenseBucket
from mpistrat.bench.training_step.pending import Pending
from mpistrat.bench.training_step.rows_bucket import RowsBucket
from mpistrat.types import Array

__all__ = ["Carrier", "CommunicatorCarrier"]


class Carrier(Protocol):
    """A library that reduces buckets while the program computes."""

    def sum(self, bucket: DenseBucket) -> Pending:
        """Start the sums of a bucket's gradients, which go to ``bucket.sums``. **Collective.**"""
        ...

    def gather(self, bucket: RowsBucket) -> Pending:
        """Start to gather the rows of all ranks, and their indices. **Collective.**"""
        ...


class CommunicatorCarrier:
    """mpistrat: `iallreduce_many` of each bucket, `iallgather` for rows.

    Rows are gathered as the optimizers gather those of `IndexedSlices`: values and indices of a
    table by a call each. To add rows that several ranks have is no communication, and left out.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator

    def sum(self, bucket: DenseBucket) -> Pending:
        """See `Carrier`."""
        start = self._communicator.iallreduce_many
        return start(bucket.gradients, bucket_bytes=bucket.nbytes, out=bucket.sums)

    def gather(self, bucket: RowsBucket) -> Pending:
        """See `Carrier`."""
        start = self._communicator.iallgather
        return _Works([start(array) for array in bucket.arrays])


class _Works:
    """Several works as one."""

    def __init__(self, works: Sequence[Work[Any]]) -> None:
        self._works = works

    def test(self) -> bool:
        return self._works[-1].test()  # they finish in the order of their start

    def wait(self) -> list[Array]:
        return [work.wait() for work in self._works]
