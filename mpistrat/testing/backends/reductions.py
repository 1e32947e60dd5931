"""Conformance of backends: allreduce, allreduce_many, reduce and reduce_scatter."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mpistrat.collectives.communicator import Communicator
from mpistrat.errors import UsageError
from mpistrat.tables.even_cut import even_lengths
from mpistrat.testing.backends.cases import BackendCases, setting
from mpistrat.testing.backends.samples import (
    DTYPES,
    SHAPES,
    assert_same,
    expected_reduction,
    get_dtype,
    ops_for,
    rows_of,
    sample,
)
from mpistrat.types import Array

__all__ = ["ReductionCases"]


def _everyone(comm: Communicator, dtype: str, shape: tuple[int, ...]) -> list[Array]:
    return [sample(dtype, shape, rank) for rank in range(comm.size)]


class ReductionCases(BackendCases):
    """Every reduction gives what double precision gives, rounded once."""

    def test_allreduce(self, size: int, dtype: str) -> None:
        """Every op, every shape; the result is new memory."""

        def body(comm: Communicator) -> None:
            for shape in SHAPES:
                everyone = _everyone(comm, dtype, shape)
                mine = everyone[comm.rank]
                for op in ops_for(dtype):
                    total = comm.allreduce(mine, op)
                    assert_same(total, expected_reduction(op, everyone), f"{op} of {shape}")
                    assert total.flags.writeable
                    assert not np.may_share_memory(total, mine)
                assert_same(mine, sample(dtype, shape, comm.rank), "the input afterwards")

        self.run(size, body)

    def test_allreduce_without_payload_in_the_gate(self, size: int, dtype: str) -> None:
        """Small arrays go through the backend if the gate does not carry them."""

        def body(comm: Communicator) -> None:
            for shape in ((), (0,), (3,)):
                everyone = _everyone(comm, dtype, shape)
                for op in ops_for(dtype):
                    total = comm.allreduce(everyone[comm.rank], op)
                    assert_same(total, expected_reduction(op, everyone), f"{op} of {shape}")

        with setting("INLINE_BYTES", 0):
            self.run(size, body)

    def test_reduce(self, size: int, dtype: str) -> None:
        """Every op, shape and root; the others get None."""

        def body(comm: Communicator) -> None:
            for shape in SHAPES:
                everyone = _everyone(comm, dtype, shape)
                for root in range(comm.size):
                    op = ops_for(dtype)[(len(shape) + root) % len(ops_for(dtype))]
                    total = comm.reduce(everyone[comm.rank], op, root)
                    if comm.rank == root:
                        assert_same(total, expected_reduction(op, everyone), f"{op} of {shape}")
                    else:
                        assert total is None

        self.run(size, body)

    def test_reduce_scatter(self, size: int, dtype: str) -> None:
        """Every op and axis; as many rows as ranks, more, fewer, none."""

        def body(comm: Communicator) -> None:
            for shape in ((0,), (1,), (7,), (comm.size, 2), (4, 3, 5), (2, 200), (3, 0)):
                everyone = _everyone(comm, dtype, shape)
                for axis in range(-len(shape), len(shape)):
                    op = ops_for(dtype)[axis % len(ops_for(dtype))]
                    piece = comm.reduce_scatter(everyone[comm.rank], op, axis)
                    lengths = even_lengths(shape[axis], comm.size)
                    total = expected_reduction(op, everyone)
                    want = list(rows_of(total, lengths, axis))[comm.rank]
                    assert_same(piece, want, f"{op} of {shape} along {axis}")

        self.run(size, body)

    def test_allreduce_many(self, size: int) -> None:
        """All dtypes and shapes in one list, in buckets of any size."""
        forms = [(dtype, shape) for shape in SHAPES for dtype in DTYPES]

        def body(comm: Communicator) -> None:
            everyone = [[sample(*form, rank) for form in forms] for rank in range(comm.size)]
            for op in ("sum", "mean"):
                for nbytes in (1, 100, None):
                    totals = comm.allreduce_many(everyone[comm.rank], op, bucket_bytes=nbytes)
                    assert len(totals) == len(forms)
                    for i, (total, form) in enumerate(zip(totals, forms, strict=True)):
                        want = expected_reduction(op, [arrays[i] for arrays in everyone])
                        assert_same(total, want, f"{op} of {form}, buckets of {nbytes}")
            assert comm.allreduce_many([]) == []
            assert comm.allreduce_many([], out=[]) == []
            (only,) = comm.allreduce_many([comm.rank])
            assert only == sum(range(comm.size))

        self.run(size, body)

    def test_allreduce_many_into_arrays(self, size: int) -> None:
        """Results go where they are wanted, the source's own place too; all must fit."""
        forms = [(dtype, shape) for shape in SHAPES for dtype in DTYPES]

        def body(comm: Communicator) -> None:
            mine = [sample(*form, comm.rank) for form in forms]
            for op in ("sum", "mean"):
                wanted = comm.allreduce_many(mine, op)
                places = [
                    array.copy() if i % 2 and array.dtype == total.dtype else np.empty_like(total)
                    for i, (array, total) in enumerate(zip(mine, wanted, strict=True))
                ]
                own = [place if i % 2 else mine[i] for i, place in enumerate(places)]
                own = [a if a.dtype == b.dtype else b for a, b in zip(own, mine, strict=True)]
                found = comm.iallreduce_many(own, op, out=places).wait()
                for total, place, want in zip(found, places, wanted, strict=True):
                    assert total is place
                    assert_same(total, want, op)
            with pytest.raises(UsageError, match="2 arrays, 1 in out="):
                comm.allreduce_many([1.0, 2.0], out=[np.empty(())])

        self.run(size, body)

    def test_integers_wrap_around(self, size: int) -> None:
        """Sums of integers are those of NumPy: modulo two to the number of bits."""

        def body(comm: Communicator) -> None:
            for name in DTYPES[1:9]:
                largest = np.iinfo(name).max
                for count in (1, 300):
                    mine = np.full(count, largest, name)
                    want = expected_reduction("sum", [mine] * comm.size)
                    assert_same(comm.allreduce(mine), want, f"sum of {count} {name}")

        self.run(size, body)

    def test_halves_are_accumulated_in_single_precision(self, size: int) -> None:
        """A sum of halves is rounded once, and a mean does not overflow on its way."""

        def body(comm: Communicator) -> None:
            # Adding 1 is lost in the half type itself: its steps are 2 wide there.
            for name, wide_step in (("float16", 2048), ("bfloat16", 256)):
                largest = {"float16": 65504.0, "bfloat16": 2.0**120}[name]
                for count in (1, 300):
                    value = wide_step if comm.rank == 0 else 1
                    mine = np.full(count, value, get_dtype(name))
                    want = np.full(count, wide_step + comm.size - 1, get_dtype(name))
                    assert_same(comm.allreduce(mine), want, f"sum of {count} {name}")
                    high = np.full(count, largest, get_dtype(name))
                    assert_same(comm.allreduce(high, "mean"), high, f"mean of {count} {name}")

        self.run(size, body)

    def test_mean_of_integers_is_float64(self, size: int) -> None:
        """It cannot overflow, and is TensorFlow's true division."""

        def body(comm: Communicator) -> None:
            for count in (1, 300):
                mine = np.full(count, 2**62, np.int64)
                assert_same(comm.allreduce(mine, "mean"), np.full(count, 2.0**62), "large")
                mine = np.full(count, comm.rank, np.uint8)
                want = np.full(count, (comm.size - 1) / 2)
                assert_same(comm.allreduce(mine, "mean"), want, "mean of the ranks")
                truth = np.full(count, comm.rank == 0)
                assert_same(comm.allreduce(truth, "mean"), np.full(count, 1 / comm.size), "bool")

        self.run(size, body)

    def test_same_bits_on_all_ranks_and_in_every_run(self, size: int) -> None:
        """Rounding depends on the order of a sum, so the order must not change."""

        def body(comm: Communicator) -> None:
            for name in ("float16", "float32", "float64", "complex64"):
                for count in (5, 1000, 50_001):
                    random = np.random.default_rng([comm.rank, count])
                    mine = (random.normal(size=count) * 10.0 ** random.integers(-3, 3)).astype(
                        name
                    )
                    for op in ("sum", "prod", "mean"):
                        with np.errstate(over="ignore"):
                            runs = [comm.allreduce(mine, op).tobytes() for _ in range(3)]
                        assert len(set(runs)) == 1, f"{op} of {count} {name}: runs differ"
                        digests = comm.allgather_object(hashlib.sha256(runs[0]).digest())
                        assert len(set(digests)) == 1, f"{op} of {count} {name}: ranks differ"

        self.run(size, body)

    def test_undefined_reductions_are_refused(self, size: int) -> None:
        """No order of complex numbers, no bits of real ones, no unknown names."""

        def body(comm: Communicator) -> None:
            cases = [(name, op) for name in ("complex64", "complex128") for op in ("min", "max")]
            cases += [(n, op) for n in ("float16", "float32", "complex64") for op in ("or", "xor")]
            for name, op in cases:
                for count in (1, 300):
                    array = sample(name, (count,), comm.rank)
                    with pytest.raises(
                        UsageError, match=f"'{op}' has no meaning for dtype {name}"
                    ):
                        comm.allreduce(array, op)
            with pytest.raises(UsageError, match="op='average' is not a reduction; expected one"):
                comm.allreduce(1.0, "average")
            assert comm.allreduce(1) == comm.size

        self.run(size, body)
