"""Conformance of backends: arrays that are longer than the longest message."""

from __future__ import annotations

import numpy as np
import pytest

from mpistrat import built_in_sizes
from mpistrat.collectives.communicator import Communicator
from mpistrat.tables.even_cut import even_lengths
from mpistrat.testing.backends.cases import BackendCases, Body, setting
from mpistrat.testing.backends.samples import assert_same, expected_reduction, rows_of, sample

__all__ = ["ChunkCases"]

_MOST = 5
_COUNTS = (4, 5, 6, 9, 10, 11, 23)  # below, at and above the ends of chunks
_DTYPES = ("bool", "int16", "float16", "bfloat16", "float64", "complex128")
_kinds = pytest.mark.parametrize("kind", _DTYPES)


class ChunkCases(BackendCases):
    """All operations with messages of at most five elements, and nothing inline."""

    @_kinds
    def test_chunked_reductions(self, size: int, kind: str) -> None:
        """Chunks end where they should, in place too."""

        def body(comm: Communicator) -> None:
            for count in _COUNTS:
                everyone = [sample(kind, (count,), rank) for rank in range(comm.size)]
                mine, root = everyone[comm.rank], count % comm.size
                total = expected_reduction("sum", everyone)
                assert_same(comm.allreduce(mine), total, f"allreduce of {count}")
                own = mine.copy()
                assert_same(comm.allreduce(own, out=own), total, f"in place, {count}")
                got = comm.reduce(mine, root=root)
                if comm.rank == root:
                    assert_same(got, total, f"reduce of {count}")
                want = list(rows_of(total, even_lengths(count, comm.size), 0))[comm.rank]
                assert_same(comm.reduce_scatter(mine), want, f"reduce_scatter of {count}")

        self._run_chunked(size, body)

    @_kinds
    def test_chunked_movement(self, size: int, kind: str) -> None:
        """Ragged pieces of several chunks, of one, and of none."""

        def body(comm: Communicator) -> None:
            for count in _COUNTS:
                root = count % comm.size
                lengths = [(count, 1, 0)[(rank + count) % 3] for rank in range(comm.size)]
                everyone = [sample(kind, (n,), rank) for rank, n in enumerate(lengths)]
                mine, joined = everyone[comm.rank], np.concatenate(everyone)
                assert_same(comm.allgather(mine), joined, f"allgather of {lengths}")
                got = comm.gather(mine, root)
                if comm.rank == root:
                    assert_same(got, joined, f"gather of {lengths}")
                whole = sample(kind, (count,), 7)
                start = whole if comm.rank == root else np.zeros_like(whole)
                assert_same(comm.bcast(start, root), whole, f"bcast of {count}")
                got = comm.scatter(whole if comm.rank == root else None, root)
                want = list(rows_of(whole, even_lengths(count, comm.size), 0))[comm.rank]
                assert_same(got, want, f"scatter of {count}")

        self._run_chunked(size, body)

    @_kinds
    def test_chunked_alltoall(self, size: int, kind: str) -> None:
        """Also if only one pair of ranks has a long piece."""

        def body(comm: Communicator) -> None:
            for count in _COUNTS:
                splits = [
                    [
                        count if (sender, to) == (0, comm.size - 1) else to
                        for to in range(comm.size)
                    ]
                    for sender in range(comm.size)
                ]
                everyone = [sample(kind, (sum(n),), rank) for rank, n in enumerate(splits)]
                blocks = [
                    list(rows_of(array, lengths, 0))[comm.rank]
                    for array, lengths in zip(everyone, splits, strict=True)
                ]
                got = comm.alltoall(everyone[comm.rank], splits[comm.rank])
                assert_same(got, np.concatenate(blocks), f"alltoall of {splits}")

        self._run_chunked(size, body)

    def _run_chunked(self, size: int, body: Body) -> None:
        most = built_in_sizes.MAX_COUNT

        def chunked(comm: Communicator) -> None:
            built_in_sizes.MAX_COUNT = (
                _MOST  # not sooner: a creation would take hundreds of messages
            )
            try:
                body(comm)
                comm.barrier()  # ranks that are threads share the setting
            finally:
                built_in_sizes.MAX_COUNT = most

        with setting("INLINE_BYTES", 0):
            self.run(size, chunked)
