"""Conformance of backends: bcast, allgather, gather, scatter, alltoall, barrier and objects."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import cycle, islice

import numpy as np

from mpistrat.collectives.communicator import Communicator
from mpistrat.tables.even_cut import even_lengths
from mpistrat.testing.backends.cases import BackendCases
from mpistrat.testing.backends.samples import SHAPES, assert_same, rows_of, sample
from mpistrat.types import Array

__all__ = ["MovementCases"]

_RAGGED = ((0, 1, 2), (3, 0, 1), (0, 0, 0), (2, 2, 2), (70, 1, 0))
"""Lengths along the axis, by rank, again from the start for more ranks."""


def _with_length(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    axis %= len(shape)
    return (*shape[:axis], length, *shape[axis + 1 :])


def _ragged(dtype: str, shape: tuple[int, ...], axis: int, lengths: Iterable[int]) -> list[Array]:
    """Return the arrays of all ranks: `shape`, but each with its own length along `axis`."""
    return [
        sample(dtype, _with_length(shape, axis, length), rank)
        for rank, length in enumerate(lengths)
    ]


class MovementCases(BackendCases):
    """What is moved arrives bit for bit, and where it belongs."""

    def test_bcast(self, size: int, moved: str) -> None:
        """Every shape and root; the others' content is ignored."""

        def body(comm: Communicator) -> None:
            for shape in SHAPES:
                for root in range(comm.size):
                    got = comm.bcast(sample(moved, shape, comm.rank), root)
                    assert_same(got, sample(moved, shape, root), f"{shape} from {root}")
                    assert got.flags.writeable

        self.run(size, body)

    def test_allgather(self, size: int, moved: str) -> None:
        """Every axis, ragged lengths, empty pieces."""

        def body(comm: Communicator) -> None:
            for shape in ((1,), (1, 3), (2, 1, 5), (2, 0)):
                for axis in range(-len(shape), len(shape)):
                    for lengths in _RAGGED:
                        everyone = _ragged(moved, shape, axis, islice(cycle(lengths), comm.size))
                        got = comm.allgather(everyone[comm.rank], axis)
                        want = np.concatenate(everyone, axis)
                        assert_same(got, want, f"{shape} along {axis}, lengths {lengths}")

        self.run(size, body)

    def test_gather(self, size: int, moved: str) -> None:
        """As allgather, at every root; the others get None."""

        def body(comm: Communicator) -> None:
            for shape, axis in (((1,), 0), ((2, 3), 1), ((2, 1, 5), -2)):
                for lengths in _RAGGED:
                    everyone = _ragged(moved, shape, axis, islice(cycle(lengths), comm.size))
                    for root in range(comm.size):
                        got = comm.gather(everyone[comm.rank], root, axis)
                        if comm.rank == root:
                            want = np.concatenate(everyone, axis)
                            assert_same(got, want, f"{shape} along {axis}, lengths {lengths}")
                        else:
                            assert got is None

        self.run(size, body)

    def test_scatter(self, size: int, moved: str) -> None:
        """Every root and axis; more rows than ranks, fewer, none."""

        def body(comm: Communicator) -> None:
            for shape in ((0,), (1,), (7,), (400,), (comm.size, 2), (4, 3, 5), (3, 0)):
                for root in range(comm.size):
                    whole = sample(moved, shape, root)
                    for axis in (-1, *range(len(shape))):
                        got = comm.scatter(whole if comm.rank == root else None, root, axis)
                        lengths = even_lengths(shape[axis], comm.size)
                        want = list(rows_of(whole, lengths, axis))[comm.rank]
                        assert_same(got, want, f"{shape} along {axis} from {root}")

        self.run(size, body)

    def test_alltoall(self, size: int, moved: str) -> None:
        """Equal blocks along every axis."""

        def body(comm: Communicator) -> None:
            for shape, axis in (((1,), 0), ((1,), -1), ((2, 3), 1), ((60, 2), 0), ((0, 2), 0)):
                length = shape[axis] * comm.size
                everyone = [
                    sample(moved, _with_length(shape, axis, length), rank)
                    for rank in range(comm.size)
                ]
                blocks = [
                    list(rows_of(array, [shape[axis]] * comm.size, axis))[comm.rank]
                    for array in everyone
                ]
                got = comm.alltoall(everyone[comm.rank], axis=axis)
                assert_same(got, np.concatenate(blocks, axis), f"{shape} along {axis}")

        self.run(size, body)

    def test_alltoall_with_splits(self, size: int, moved: str) -> None:
        """Blocks of any length, empty ones too, given as Python's or NumPy's numbers."""

        def body(comm: Communicator) -> None:
            for shape, axis in (((1,), 0), ((2, 1, 3), 1), ((1, 0), 0)):
                for most in (1, 3, 80):
                    splits = [
                        [(sender * 2 + to) % 3 * most // 2 for to in range(comm.size)]
                        for sender in range(comm.size)
                    ]
                    everyone = _ragged(moved, shape, axis, map(sum, splits))
                    blocks = [
                        list(rows_of(array, lengths, axis))[comm.rank]
                        for array, lengths in zip(everyone, splits, strict=True)
                    ]
                    mine = splits[comm.rank]
                    got = comm.alltoall(everyone[comm.rank], mine, axis)
                    assert_same(got, np.concatenate(blocks, axis), f"{shape}, splits {splits}")
                    numpys = list(np.array(mine))  # whole numbers of another type
                    again = comm.alltoall(everyone[comm.rank], numpys, axis)
                    assert_same(again, got, "splits of NumPy's type")

        self.run(size, body)

    def test_barrier(self, size: int) -> None:
        """Nobody leaves before all have come."""

        def body(comm: Communicator) -> None:
            for late in range(comm.size):
                if comm.rank == late:
                    time.sleep(0.02)
                came = time.monotonic()
                comm.barrier()
                left = time.monotonic()
                times = comm.allgather_object((came, left))
                # Ranks of one machine have one monotonic clock.
                assert max(came for came, _ in times) <= min(left for _, left in times)

        self.run(size, body)

    def test_objects(self, size: int) -> None:
        """Anything that cloudpickle takes, small and large, different on each rank."""

        def body(comm: Communicator) -> None:
            objects = (None, {"rank": comm.rank}, b"", "ä" * (comm.rank * 5000), comm.rank)
            for value in objects:
                everyone = comm.allgather_object(value)
                assert len(everyone) == comm.size
                assert everyone[comm.rank] == value
                for root in range(comm.size):
                    assert comm.bcast_object(value, root) == everyone[root]
            assert comm.bcast_object(lambda x: x + 1)(3) == 4

        self.run(size, body)
