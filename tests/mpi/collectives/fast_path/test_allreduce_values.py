"""The fast path of ``communicator.allreduce``: every dtype, op and shape, and its refusals."""

import gc
import sys

import numpy as np
import pytest

from helpers.collectives.fast_path import (
    assert_equal,
    check,
    fast_calls,
    open_communicator,
    read_only,
    slow,
)
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.testing.backends.samples import DTYPES, get_dtype, ops_for, sample

SHAPES = [(), (0,), (1,), (3, 0), (57,), (4, 5, 6), (3001,), (1, 2, 1, 2, 1, 2), (1,) * 7]


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_op_and_shape(name):
    with open_communicator() as comm:
        for op in ops_for(name):
            is_fast = not (op == "mean" and get_dtype(name).kind in "biuc")
            for shape in SHAPES:
                x = sample(name, shape, comm.rank)
                check(comm, x, op, is_fast=is_fast and len(shape) < 7)


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_numbers_at_the_edges(name):
    with open_communicator() as comm:
        dtype = get_dtype(name)
        edges = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-8, 6e-8, 65504.0, 3e38, 1e-45]
        with np.errstate(all="ignore"):
            rows = np.array(np.meshgrid(edges, edges)).reshape(2, -1).astype(dtype)
            for op in ("sum", "prod", "min", "max", "mean"):
                check(comm, rows[comm.rank].copy(), op, is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_what_is_made_a_plain_array():
    with open_communicator() as comm:
        r = comm.rank
        square = np.arange(12.0).reshape(3, 4) + r
        for value in (
            *(r, 1.5, True, 2j, np.float32(r), np.int8(3), [1, 2, r], [[1.0], [r]], (1, 2), []),
            *(np.bool_(r), [True, False], 2**62 + r, [square[0], square[1]], np.float16(1.5)),
            np.asfortranarray(square),
            square.T,
            square[:, ::2],
            square[::-1],
            np.broadcast_to(square[0], (3, 4)),
            np.zeros(33, np.uint8)[1:].view(np.float64),  # at an odd address
        ):
            check(comm, value, is_fast=True)
            check(
                comm, value, "max" if np.asarray(value).dtype.kind != "c" else "prod", is_fast=True
            )
        out = np.empty((4, 3))
        assert comm.allreduce(square.T, out=out) is out
        assert_equal(out, slow(comm, square.T))
        overlap = np.arange(12.0).reshape(3, 4)  # what is reduced is a copy
        assert comm.allreduce(overlap[:, ::-1], out=overlap) is overlap
        assert_equal(overlap, comm.size * np.arange(12.0).reshape(3, 4)[:, ::-1].copy())


@pytest.mark.mpi(ranks=2)
def test_numbers_and_lists_leave_no_references():
    with open_communicator() as comm:
        value, numbers = 1.5e300, [1.0, 2.0]
        before = sys.getrefcount(value), sys.getrefcount(numbers)
        for _ in range(300):
            comm.allreduce(value)
            comm.allreduce(numbers)
            comm.iallreduce(numbers).wait()
            with pytest.raises(UsageError):
                comm.allreduce([numbers, "text"])
        gc.collect()  # errors refer to their frames, and the last one is kept
        assert sys.getrefcount(value) == before[0]
        assert sys.getrefcount(numbers) <= before[1] + 1


@pytest.mark.mpi(ranks=2)
def test_what_is_no_plain_array():
    with open_communicator() as comm:
        square = np.arange(12.0).reshape(3, 4) + comm.rank
        for value in (
            np.asfortranarray(np.arange(20_000.0).reshape(100, 200)),  # too long to be copied here
            np.matrix(square),
            square.view(np.memmap),
            np.ma.asarray(square).data.view(np.recarray),
            memoryview(b"abc"),
        ):
            check(comm, value, is_fast=False)
        for value in (np.array(1.5), read_only(np.ones(3)), np.ones(3, "q"), square[1:]):
            check(comm, value, is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_what_cannot_be_sent():
    with open_communicator() as comm:
        for value in (
            np.ones(3, ">f4"),
            np.ma.masked_array([1.0, 2.0], [True, False]),
            np.ones(3, np.longdouble),
            np.array(["a"]),
            np.array([None]),
            np.zeros(2, "i4,f4"),
            np.zeros(2, "M8[s]"),
            np.zeros(2, "m8[s]"),
            "text",
            None,
        ):
            before = fast_calls(comm)
            with pytest.raises(UsageError) as error:
                comm.allreduce(value)
            assert isinstance(error.value, ArgumentTypeError) or ">f4" in str(error.value)
            assert fast_calls(comm) == before
        for value, op in [
            (np.ones(2), "and"),
            (np.ones(2, complex), "max"),
            (np.ones(2), "median"),
            (np.ones(2), None),
            (np.ones(2), 3),
            (np.ones(2), np.add),
        ]:
            with pytest.raises(UsageError, match=r"median|op=|reduction"):
                comm.allreduce(value, op)
        check(comm, np.ones(3), is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_bools_whose_bytes_are_neither_0_nor_1():
    with open_communicator() as comm:
        odd = np.array([0, 1, 2, 255, 128, 0], np.uint8)
        mine = (odd if comm.rank == 0 else odd[::-1].copy()).repeat(100).view(np.bool_)
        plain = [part.repeat(100) != 0 for part in (odd, odd[::-1])]
        for op, want in {
            "sum": plain[0] | plain[1],
            "max": plain[0] | plain[1],
            "or": plain[0] | plain[1],
            "prod": plain[0] & plain[1],
            "min": plain[0] & plain[1],
            "and": plain[0] & plain[1],
            "xor": plain[0] ^ plain[1],
        }.items():
            for part in (slice(0, 6 * 100), slice(95, 105)):
                assert_equal(check(comm, mine[part], op, is_fast=True), want[part], op)
        np.testing.assert_array_equal(
            comm.allreduce(mine, "mean"), (0.0 + plain[0] + plain[1]) / 2
        )
