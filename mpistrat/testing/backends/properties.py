"""Properties of collectives: random cases, compared with NumPy in double precision.

A `Case` holds what the ranks must agree on and a seed for what they need not, so every rank can
compute every rank's input. Each ``check_<operation>`` is called on every rank with the same case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat import built_in_sizes
from mpistrat.collectives.communicator import Communicator
from mpistrat.testing.backends.samples import (
    DTYPES,
    expected_reduction,
    get_dtype,
    ops_for,
    rows_of,
)
from mpistrat.types import Array

__all__ = ["CHECKS", "Case", "random_case"]


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes
    ----------
    dtype
        Name of the dtype.
    shape
        Shape; operations that let ranks differ along the axis replace that length.
    axis
        Axis, counted from the front or from the end; 0 where the shape is ``()``.
    op
        Reduction; it has a meaning for the dtype.
    root
        Any number; taken modulo the number of ranks.
    seed
        Where the content comes from.
    """

    dtype: str
    shape: tuple[int, ...]
    axis: int
    op: str
    root: int
    seed: int

    def lengths(self, count: int, salt: int = 0) -> list[int]:
        """Return `count` lengths, zero too."""
        random = np.random.default_rng([self.seed, 7, salt])
        return [int(n) for n in random.integers(0, 5, count)]

    def array(self, rank: int, length: int | None = None) -> Array:
        """Return a rank's input; `length` replaces the one along the axis."""
        shape = list(self.shape)
        if length is not None:
            shape[self.axis] = length
        random = np.random.default_rng([self.seed, rank])
        dtype = get_dtype(self.dtype)
        if dtype.kind == "b":
            return np.asarray(random.random(shape) < 0.5)
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            numbers = random.integers(info.min, info.max, shape, dtype, endpoint=True)
            return np.asarray(numbers)
        numbers = random.normal(size=shape) * 10.0 ** random.integers(-2, 2, shape)
        if dtype.kind == "c":
            numbers = numbers + 1j * random.normal(size=shape)
        return np.asarray(numbers).astype(dtype)


def random_case(random: np.random.Generator) -> Case:
    """Draw a case; the same one on every rank whose generator has the same state."""
    dtype = DTYPES[random.integers(len(DTYPES))]
    shape = tuple(int(n) for n in random.integers(0, 6, random.integers(0, 4)))
    if shape and random.random() < 0.2:
        # In every dtype longer than a header carries, so that the backend moves it.
        shape = (*shape[:-1], built_in_sizes.INLINE_BYTES + 1)
    axis = int(random.integers(-len(shape), len(shape))) if shape else 0
    op = str(random.choice(ops_for(dtype)))
    return Case(dtype, shape, axis, op, int(random.integers(12)), int(random.integers(2**31)))


def _reference(op: str, arrays: Sequence[Array]) -> tuple[Array, Array]:
    """Return the result in double precision, and how far off a correct one may be."""
    dtype, size = arrays[0].dtype, len(arrays)
    if dtype.kind in "iu" and op != "mean":
        exact = expected_reduction(op, arrays)
        return exact, np.zeros(exact.shape)
    wide = np.stack([a.astype(np.complex128 if a.dtype.kind == "c" else "f8") for a in arrays])
    if dtype.kind == "b" and op != "mean":
        ones = wide.sum(axis=0)
        some, all_ = ones > 0, ones == size
        truth = {"prod": all_, "min": all_, "and": all_, "xor": ones % 2 == 1}.get(op, some)
        return truth, np.zeros(truth.shape)
    totals: dict[str, Callable[[], Any]] = {
        "sum": lambda: wide.sum(axis=0),
        "mean": lambda: wide.mean(axis=0),
        "prod": lambda: wide.prod(axis=0),
        "min": lambda: wide.min(axis=0),
        "max": lambda: wide.max(axis=0),
    }
    total = np.asarray(totals[op]())
    size_of_terms = np.abs(wide).prod(axis=0) if op == "prod" else np.abs(wide).sum(axis=0)
    return total, _tolerance(dtype, op, size_of_terms, np.abs(total), size)


def _tolerance(dtype: np.dtype[Any], op: str, terms: Array, total: Array, size: int) -> Array:
    """Bound the error: one rounding an addition or multiplication, one more for a half type."""
    if op in ("min", "max"):
        return np.zeros(total.shape)
    steps = {"float32": 2**-23, "complex64": 2**-23, "float16": 2**-23, "bfloat16": 2**-23}
    # Of the sum of the terms' magnitudes: where terms cancel, the total is no measure of the
    # error.
    bound = 4 * size * steps.get(dtype.name, 2**-52) * terms
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        # Below its normal numbers a half type has steps of a fixed width.
        bound += total * (2**-7 if dtype.name == "bfloat16" else 2**-10) + 2**-24
    return np.asarray(bound)


def _compare(got: Array | None, op: str, arrays: Sequence[Array], case: Case) -> None:
    assert got is not None, case
    want, bound = _reference(op, arrays)
    _close(got, want, bound, op, arrays[0].dtype, case)


def _close(
    got: Array, want: Array, bound: Array, op: str, dtype: np.dtype[Any], case: Case
) -> None:
    held = np.dtype(np.float64) if op == "mean" and dtype.kind in "biu" else dtype
    assert (got.dtype, got.shape) == (held, want.shape), (got.dtype, got.shape, case)
    if held.kind in "biu":
        np.testing.assert_array_equal(got, want, err_msg=str(case))
        return
    wide = got.astype(np.complex128 if held.kind == "c" else np.float64)
    error = np.abs(wide - want)
    assert np.all(error <= bound), f"{case}: {got}, expected {want} within {bound}"


def _same(got: Array | None, want: Array, case: Case) -> None:
    assert got is not None, case
    assert got.dtype == want.dtype, case
    np.testing.assert_array_equal(got, want, err_msg=str(case), strict=True)


def check_allreduce(comm: Communicator, case: Case) -> None:
    """Close to double precision, also in place."""
    everyone = [case.array(rank) for rank in range(comm.size)]
    got = comm.allreduce(everyone[comm.rank], case.op)
    _compare(got, case.op, everyone, case)
    own = everyone[comm.rank].copy()
    # A mean of integers is float64 and has no place in its input.
    if got.dtype == own.dtype:
        assert comm.allreduce(own, case.op, out=own) is own
        _same(own, got, case)


def check_allreduce_many(comm: Communicator, case: Case) -> None:
    """As each array by itself, whatever the buckets."""
    forms = [case, Case(case.dtype, (3,), 0, case.op, 0, case.seed + 1)]
    forms.append(Case(case.dtype, case.shape[:1], 0, case.op, 0, case.seed + 2))
    nbytes = (case.seed % 200) + 1
    mine = [form.array(comm.rank) for form in forms]
    totals = comm.allreduce_many(mine, case.op, bucket_bytes=nbytes)
    for total, form in zip(totals, forms, strict=True):
        _compare(total, case.op, [form.array(rank) for rank in range(comm.size)], form)


def check_reduce(comm: Communicator, case: Case) -> None:
    """As allreduce, at the root."""
    root = case.root % comm.size
    got = comm.reduce(case.array(comm.rank), case.op, root)
    if comm.rank == root:
        _compare(got, case.op, [case.array(rank) for rank in range(comm.size)], case)
    else:
        assert got is None, case


def check_reduce_scatter(comm: Communicator, case: Case) -> None:
    """Check that the pieces, joined, are the whole; earlier ranks have at most one row more."""
    if not case.shape:
        return
    everyone = [case.array(rank) for rank in range(comm.size)]
    piece = comm.reduce_scatter(everyone[comm.rank], case.op, case.axis)
    lengths = [n for (n,) in comm.allgather_object((piece.shape[case.axis],))]
    assert sum(lengths) == case.shape[case.axis], case
    assert sorted(lengths, reverse=True) == lengths, case
    assert max(lengths) - min(lengths) <= 1, case
    parts = [list(rows_of(array, lengths, case.axis))[comm.rank] for array in everyone]
    _compare(piece, case.op, parts, case)


def check_bcast(comm: Communicator, case: Case) -> None:
    """Check for the root's bits, everywhere."""
    root = case.root % comm.size
    _same(comm.bcast(case.array(comm.rank), root), case.array(root), case)


def check_allgather(comm: Communicator, case: Case) -> None:
    """NumPy's concatenate, of ragged pieces."""
    if not case.shape:
        return
    everyone = [case.array(rank, n) for rank, n in enumerate(case.lengths(comm.size))]
    got = comm.allgather(everyone[comm.rank], case.axis)
    _same(got, np.concatenate(everyone, case.axis), case)


def check_gather(comm: Communicator, case: Case) -> None:
    """As allgather, at the root."""
    if not case.shape:
        return
    root = case.root % comm.size
    everyone = [case.array(rank, n) for rank, n in enumerate(case.lengths(comm.size))]
    got = comm.gather(everyone[comm.rank], root, case.axis)
    if comm.rank == root:
        _same(got, np.concatenate(everyone, case.axis), case)
    else:
        assert got is None, case


def check_scatter(comm: Communicator, case: Case) -> None:
    """Check that the pieces, joined, are the root's array."""
    if not case.shape:
        return
    root = case.root % comm.size
    whole = case.array(root)
    piece = comm.scatter(whole if comm.rank == root else None, root, case.axis)
    _same(comm.allgather(piece, case.axis), whole, case)


def check_alltoall(comm: Communicator, case: Case) -> None:
    """Block i of rank j becomes block j of rank i."""
    if not case.shape:
        return
    splits = [case.lengths(comm.size, salt=rank) for rank in range(comm.size)]
    everyone = [case.array(rank, sum(n)) for rank, n in enumerate(splits)]
    blocks = [
        list(rows_of(array, lengths, case.axis))[comm.rank]
        for array, lengths in zip(everyone, splits, strict=True)
    ]
    got = comm.alltoall(everyone[comm.rank], splits[comm.rank], case.axis)
    _same(got, np.concatenate(blocks, case.axis), case)


def check_objects(comm: Communicator, case: Case) -> None:
    """Python objects arrive equal."""
    mine = (comm.rank, case.lengths(comm.rank, comm.rank), case)
    everyone = comm.allgather_object(mine)
    assert [rank for rank, _, _ in everyone] == list(range(comm.size)), case
    assert everyone[comm.rank] == mine
    root = case.root % comm.size
    assert comm.bcast_object(mine, root) == everyone[root], case


CHECKS: tuple[Callable[[Communicator, Case], None], ...] = (
    *(check_allreduce, check_allreduce_many, check_reduce, check_reduce_scatter, check_bcast),
    *(check_allgather, check_gather, check_scatter, check_alltoall, check_objects),
)
"""All properties."""
