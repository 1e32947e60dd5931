"""The peer ``mpi4py`` in a training step: the running MPI library's own non-blocking calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpistrat.bench.training_step.dense_bucket import DenseBucket
from mpistrat.bench.training_step.pending import Pending
from mpistrat.bench.training_step.rows_bucket import RowsBucket
from mpistrat.types import Array

__all__ = ["RequestsCarrier"]


class RequestsCarrier:
    """MPI_Iallreduce and MPI_Iallgatherv, on memory that is allocated before the first step.

    Parameters
    ----------
    comm
        A communicator of mpi4py.
    """

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._rooms: list[Array] = []

    def sum(self, bucket: DenseBucket) -> Pending:
        """See `Carrier`. Gradients are packed, and summed in place; results are views."""
        from mpi4py import MPI

        sums = bucket.sums
        for gradient, own in zip(bucket.gradients, sums, strict=True):
            np.copyto(own, gradient)
        request = self._comm.Iallreduce(MPI.IN_PLACE, bucket.flat, MPI.SUM)
        return _Requests([request], sums)

    def gather(self, bucket: RowsBucket) -> Pending:
        """See `Carrier`. How many rows the ranks have is gathered first, by a blocking call."""
        mine = np.array([len(array) for array in bucket.arrays])
        counts = np.empty((self._comm.size, mine.size), mine.dtype)
        self._comm.Allgather(mine, counts)
        rooms = self._rooms or [self._room(bucket, number) for number in range(mine.size)]
        self._rooms = rooms
        results = [room[:rows] for room, rows in zip(rooms, counts.sum(axis=0), strict=True)]
        triples = zip(bucket.arrays, results, counts.T, strict=True)
        return _Requests([self._start(*triple) for triple in triples], results)

    def _room(self, bucket: RowsBucket, number: int) -> Array:
        """Return memory for as many rows as there may be of an array of the bucket."""
        array, table = bucket.arrays[number], bucket.tables[number // 2]
        return np.zeros((table.most_rows * bucket.size, *array.shape[1:]), array.dtype)

    def _start(self, array: Array, result: Array, rows: Array) -> Any:
        counts = rows * math.prod(array.shape[1:])
        return self._comm.Iallgatherv(array, [result, counts.tolist()])


class _Requests:
    """Requests of MPI, and where their results will be."""

    def __init__(self, requests: list[Any], results: Sequence[Array]) -> None:
        self._requests, self._results = requests, results

    def test(self) -> bool:
        from mpi4py import MPI

        return bool(MPI.Request.Testall(self._requests))

    def wait(self) -> Sequence[Array]:
        from mpi4py import MPI

        MPI.Request.Waitall(self._requests)
        return self._results
