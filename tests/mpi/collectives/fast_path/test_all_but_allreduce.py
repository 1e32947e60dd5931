"""The fast path of the other collectives: values, arguments, unequal ranks, and late ones."""

import inspect
import pickle
import re
import time
import weakref

import numpy as np
import pytest

from helpers.collectives.fast_path import (
    assert_equal,
    check,
    drop,
    fast_calls,
    open_communicator,
    slow,
)
from mpistrat.collectives import Communicator
from mpistrat.errors import MismatchError, PeerLostError, UsageError
from mpistrat.testing.sets import repeats

pytestmark = pytest.mark.mpi(ranks=[2, 3], timeout_s=60)

BACKENDS = ["shm", "hierarchical"]
DTYPES = ("int8", "uint16", "int64", "float16", "float32", "float64", "complex128")
SIZES = [1, 7, 1000, pytest.param(70_000, marks=repeats()), 300_000]


def methods(comm, x):
    """Yield a call of each method, with an array whose rows can be cut evenly."""
    last = comm.size - 1
    yield "reduce", (x, "sum", last), {}
    yield "reduce", (x, "max"), {"root": 0}
    yield "reduce_scatter", (x,), {}
    yield "reduce_scatter", (x, "max", 0), {"timeout": None}
    yield "bcast", (x, last), {}
    yield "bcast", (), {"array": x, "root": 0}
    yield "allgather", (x,), {}
    yield "allgather", (x,), {"axis": 0}
    yield "gather", (x, last), {}
    yield "gather", (x,), {}
    yield "alltoall", (x,), {}
    yield "alltoall", (x, None, 0), {}
    yield "scatter", (x if comm.rank == 0 else None,), {}
    yield "scatter", (x if comm.rank == last else None, last), {}


def rows(comm, count, dtype="float64", columns=()):
    """Return an array that tells ranks and places apart, of `count` rows for each rank."""
    shape = (count * comm.size, *columns)
    values = np.arange(np.prod(shape)).reshape(shape) * (comm.rank + 1) % 101
    return values.astype(dtype)


def result_like(comm, method, x):
    """Return memory for the result of a method on every rank."""
    if method in ("allgather", "gather"):
        return np.empty((x.shape[0] * comm.size, *x.shape[1:]), x.dtype)
    if method in ("scatter", "reduce_scatter"):
        return np.empty((x.shape[0] // comm.size, *x.shape[1:]), x.dtype)
    return np.empty_like(x)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", SIZES)
def test_the_same_as_the_long_way(backend, count):
    with open_communicator(backend) as comm:
        for columns in ((), (3,)) if count < 1000 else ((),):
            x = rows(comm, count, columns=columns)
            for method, arguments, options in methods(comm, x):
                if method == "scatter":  # ranks guess what they were given last by this root
                    slow(comm, *arguments, method=method, **options)
                check(comm, *arguments, method=method, is_fast=True, **options)


def test_every_dtype():
    with open_communicator() as comm:
        for dtype in DTYPES:
            x = rows(comm, 5, dtype)
            for method, arguments, options in methods(comm, x):
                if dtype.startswith("complex") and "max" in arguments[1:]:
                    continue
                if method == "scatter":
                    slow(comm, *arguments, method=method, **options)
                check(comm, *arguments, method=method, is_fast=True, **options)


@pytest.mark.parametrize("count", [5, 40_000])
def test_results_in_out(count):
    with open_communicator() as comm:
        x = rows(comm, count)
        for method, arguments, options in methods(comm, x):
            out = result_like(comm, method, x)
            if method == "scatter":
                slow(comm, *arguments, method=method, **options)
            before = fast_calls(comm)
            got = getattr(comm, method)(*arguments, out=out, **options)
            assert fast_calls(comm) == before + 1, method
            want = slow(comm, *arguments, method=method, **options)
            if want is None:
                assert got is None, method
            else:
                assert got is out, method
                assert_equal(got, want, method)
        assert comm.bcast(x, out=x) is x
        assert comm.reduce(x, out=x) is (x if comm.rank == 0 else None)


def test_results_in_out_the_long_way():
    with open_communicator() as comm:
        x = rows(comm, 4, columns=(comm.size,))
        for method, arguments, options in methods(comm, x):
            want = slow(comm, *arguments, method=method, **options)
            out = None if want is None else np.asfortranarray(np.zeros_like(want))
            got = getattr(comm, method)(*arguments, out=out, **options)
            assert got is out, method
            np.testing.assert_array_equal(got, want, method)
        turned = np.empty((4 * comm.size, comm.size**2)) if comm.rank == 0 else None
        want = slow(comm, x, 0, 1, method="gather")
        got = comm.gather(x, 0, 1, out=turned)
        assert got is turned
        if comm.rank == 0:
            assert_equal(got, want)


@pytest.mark.parametrize("method", ["allgather", "alltoall"])
def test_out_must_not_be_the_array(method):
    with open_communicator() as comm:
        everything = rows(comm, 3 if method == "alltoall" else 3 * comm.size)
        mine = everything if method == "alltoall" else everything[: 3 * comm.size]
        want = slow(comm, mine.copy(), method=method)
        before = fast_calls(comm)
        assert_equal(getattr(comm, method)(mine, out=everything), want)
        assert fast_calls(comm) == before


def test_calls_that_go_the_long_way():
    with open_communicator() as comm:
        x = rows(comm, 6, columns=(2 * comm.size,))
        for array in (x[::-1], x.T, x.tolist()):  # of which native code makes plain ones
            for method in ("allgather", "bcast", "gather", "reduce", "alltoall"):
                check(comm, array, method=method, is_fast=True)
        for arguments in ((x.astype(bool),), (x, 1), (x, -1)):
            check(comm, *arguments, method="allgather", is_fast=False)
        check(comm, x.astype(bool), method="bcast", is_fast=False)
        check(comm, x, [6] * comm.size, method="alltoall", is_fast=False)
        check(comm, x[:0], method="allgather", is_fast=False)
        check(
            comm, np.arange(comm.rank + 1.0), method="allgather", is_fast=True
        )  # which is ragged
        uneven = np.arange(comm.size + 1.0)
        check(comm, uneven, method="reduce_scatter", is_fast=True)
        with pytest.raises(UsageError, match="equal blocks"):
            comm.alltoall(uneven)


def test_ragged_rows_with_and_without_out():
    with open_communicator() as comm:
        for count in (3, 30_000):
            mine = np.full((count + comm.rank, 2), float(comm.rank))
            counts = [count + rank for rank in range(comm.size)]
            want = np.repeat(np.arange(comm.size, dtype=float), counts)[:, None] * [1, 1]
            assert_equal(comm.allgather(mine), want)
            out = np.empty_like(want)
            assert comm.allgather(mine, out=out) is out
            assert_equal(out, want)
            got = comm.gather(mine, comm.size - 1, out=out)
            assert got is (out if comm.rank == comm.size - 1 else None)


def test_out_whose_length_is_wrong_is_an_error_of_that_rank():
    comm = open_communicator()
    out = np.empty(comm.size * 2 + (comm.rank == 1))
    if comm.rank == 1:
        with pytest.raises(UsageError, match=re.escape("allgather: out has shape")):
            comm.allgather(np.ones(2), out=out)
    else:
        assert comm.allgather(np.ones(2), out=out) is out
        with pytest.raises(PeerLostError, match="rank 1"):
            comm.barrier()
    drop(comm)


def test_scatters_of_changing_forms():
    with open_communicator() as comm:
        for shape, dtype in [
            ((6, 2), "f8"),
            ((6, 2), "f8"),
            ((7,), "f8"),
            ((7,), "i2"),
            ((7,), "i2"),
        ]:
            for root in (0, 1):
                x = np.arange(np.prod(shape)).reshape(shape).astype(dtype) + root
                want = np.array_split(x, comm.size)[comm.rank]
                assert_equal(comm.scatter(x if comm.rank == root else None, root), want)
        before = fast_calls(comm)
        comm.scatter(x if comm.rank == 1 else None, 1)
        assert fast_calls(comm) == before + 1


def test_scatters_of_many_dimensions():
    with open_communicator() as comm:
        for ndim in (7, 9, 20):
            x = np.arange(112.0).reshape(7, 2, 2, 2, 2, *[1] * (ndim - 5))
            for _ in range(3):
                got = comm.scatter(x if comm.rank == 0 else None)
                assert_equal(got, np.array_split(x, comm.size)[comm.rank])


def test_scatters_by_several_roots():
    with open_communicator() as comm:
        x = np.arange(12.0)
        for root in (0, 0, 1, 0, 0):
            comm.scatter(x if comm.rank == root else None, root)
        before = fast_calls(comm)
        comm.scatter(x if comm.rank == 0 else None)
        assert fast_calls(comm) == before + 1


def test_calls_that_python_would_refuse():
    with open_communicator() as comm:
        x = rows(comm, 2)
        comm.scatter(x if comm.rank == 0 else None)
        for call in (
            lambda: comm.barrier(out=5),
            lambda: comm.barrier(None),
            lambda: comm.allreduce_soon(x, timeout=None),
            comm.scatter,
            lambda: comm.scatter(root=0),
            lambda: comm.allgather(x, 0, x),
            lambda: comm.gather(x, 0, root=0),
            comm.bcast,
        ):
            with pytest.raises(TypeError, match="argument"):
                call()
        check(comm, x, method="allgather", is_fast=True)


def test_a_method_is_like_a_function():
    with open_communicator() as comm:
        x = rows(comm, 2)
        assert pickle.loads(pickle.dumps(Communicator.allgather)) is Communicator.allgather
        assert weakref.WeakMethod(comm.allgather)()(x).size == x.size * comm.size
        assert Communicator.allgather(comm, x).size == x.size * comm.size
        parameters = inspect.signature(comm.scatter).parameters
        assert list(parameters) == ["array", "root", "axis", "out", "timeout"]
        assert "rank order" in inspect.getdoc(Communicator.allgather)
        with pytest.raises(AttributeError, match="'int' object has no attribute"):
            Communicator.allgather(5, x)


def test_barriers():
    with open_communicator() as comm:
        for _ in range(5):
            before = fast_calls(comm)
            assert comm.barrier() is None
            assert fast_calls(comm) == before + 1
        comm.barrier(timeout=10)
        assert fast_calls(comm) == before + 2
        comm.barrier(timeout=0.1)
        assert fast_calls(comm) == before + 2


@pytest.mark.parametrize("method", ["allgather", "bcast", "alltoall", "reduce_scatter", "barrier"])
def test_one_rank_comes_late(method):
    with open_communicator() as comm:
        x = rows(comm, 3)
        arguments = () if method == "barrier" else (x,)
        want = slow(comm, *arguments, method=method)
        comm.barrier()
        if comm.rank == 1:
            time.sleep(0.05)
        got = getattr(comm, method)(*arguments)
        if want is None:
            assert got is None
        else:
            assert_equal(got, want)


@pytest.mark.parametrize("method", ["allgather", "gather", "bcast", "reduce", "alltoall"])
def test_calls_that_differ(method):
    with open_communicator() as comm:
        x = np.ones((2 * comm.size, 1 + comm.rank))
        with pytest.raises(MismatchError, match=method):
            getattr(comm, method)(x)
        calls = [comm.barrier, *[lambda: getattr(comm, method)(np.ones(comm.size))] * 2]
        with pytest.raises(MismatchError, match="barrier"):
            calls[comm.rank]()
        check(comm, np.ones(comm.size), method="allgather", is_fast=True)


def test_records():
    with open_communicator() as comm:
        x = rows(comm, 2, "float32")
        with comm.labelled("a test"):
            comm.allgather(x)
            comm.reduce_scatter(x, "max")
            comm.barrier()
        found = [
            (one.op, one.reduction, one.dtype, one.nbytes, one.label, one.state)
            for one in comm.records()[-3:]
        ]
        assert found == [
            ("allgather", None, "float32", x.nbytes, "a test", "done"),
            ("reduce_scatter", "max", "float32", x.nbytes, "a test", "done"),
            ("barrier", None, None, 0, "a test", "done"),
        ]


def test_long_results_are_of_memory_that_is_used_again():
    with open_communicator() as comm:
        x = np.ones(100_000)
        first = comm.allgather(x)
        kept = first[5:]
        address = first.ctypes.data
        del first
        assert comm.allgather(x).ctypes.data != address  # a part of it is in use
        del kept
        places = {comm.allgather(x).ctypes.data for _ in range(6)}
        assert len(places) <= 2
