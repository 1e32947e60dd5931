"""Lists of arrays of one dtype: made natively, with the results of the general way."""

import sys
import time

import numpy as np
import pytest

from helpers.collectives.fast_path import (
    assert_equal,
    drop,
    fast_calls,
    open_communicator,
    read_only,
    slow,
)
from mpistrat.collectives import Work
from mpistrat.errors import (
    CommunicationError,
    CommunicationTimeoutError,
    MismatchError,
    UsageError,
)
from mpistrat.testing.backends.samples import get_dtype

SHAPES = [(3, 4), (), (1,), (2, 0), (5, 1, 7), (1000,)]
MANY = ("allreduce_many", "iallreduce_many")


def world():
    from mpi4py import MPI

    return MPI.COMM_WORLD


def arrays(rank=0, dtype=np.float32):
    random = np.random.default_rng(rank)
    return [np.asarray(random.random(shape) * 9).astype(dtype) for shape in SHAPES]


def call(comm, method, *arguments, **options):
    found = getattr(comm, method)(*arguments, **options)
    return found.wait(timeout=10.0) if isinstance(found, Work) else found


def check(comm, values, *arguments, is_fast=True, **options):
    """Compare the blocking and the nonblocking call with the general way, and where they went."""
    want = slow(comm, values, *arguments, method="allreduce_many", **options)
    for method in MANY:
        before = fast_calls(comm)
        found = call(comm, method, values, *arguments, **options)
        assert fast_calls(comm) - before == is_fast, (method, arguments, options)
        assert type(found) is list
        for got, one in zip(found, want, strict=True):
            assert_equal(got, one, method)
    return found


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("backend", ["shm", "hierarchical"])
def test_results_are_those_of_the_general_way(backend):
    with open_communicator(backend) as comm:
        for dtype in ("f4", "f8", "f2", "i1", "i8", "c16", "bool", get_dtype("bfloat16")):
            mine = arrays(comm.rank, dtype)
            check(comm, mine)
            check(comm, tuple(mine), "prod", bucket_bytes=1000)
            check(comm, mine[:1])
        check(comm, arrays(comm.rank), "mean")
        check(comm, [read_only(one) for one in arrays(comm.rank)], op="max")
        check(comm, list(np.ones((9, 5))), "min")


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_results_are_the_callers_own():
    with open_communicator() as comm:
        mine = arrays(comm.rank)
        first, second = comm.allreduce_many(mine), comm.allreduce_many(mine)
        want = [one.copy() for one in second]
        for one in first:
            one[...] = -1
        for got, one in zip(second, want, strict=True):
            assert_equal(got, one)


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("backend", ["shm", "hierarchical"])
def test_results_go_into_what_is_given(backend):
    with open_communicator(backend) as comm:
        mine = [one for one in arrays(comm.rank) if one.size]
        want = slow(comm, mine, method="allreduce_many")
        for method in MANY:
            outs = [np.zeros_like(one) for one in mine]
            given, before = tuple(outs), fast_calls(comm)
            found = call(comm, method, mine, out=given)
            assert fast_calls(comm) == before + 1
            assert type(found) is list
            for got, out, one in zip(found, outs, want, strict=True):
                assert got is out
                assert_equal(got, one)
        before = fast_calls(comm)
        found = comm.allreduce_many(mine, out=mine)
        assert fast_calls(comm) == before + 1
        assert all(got is one for got, one in zip(found, mine, strict=True))
        for got, one in zip(mine, want, strict=True):
            assert_equal(got, one)


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_what_is_unusual_goes_the_general_way():
    with open_communicator() as comm:
        mine = [np.full((3, 2), comm.rank + 1.0), np.arange(4.0)]
        unusual = {
            "another order": [np.asfortranarray(mine[0]), mine[1]],
            "steps": [mine[0], np.arange(8.0)[::2]],
            "a number": [mine[0], 2.0],
            "a subclass": [np.asmatrix(mine[0]), mine[1]],
            "none": [],
        }
        for name, values in unusual.items():
            before = fast_calls(comm)
            found = comm.allreduce_many(values)
            assert fast_calls(comm) == before, name
            assert len(found) == len(values)
        memory = np.zeros(10)
        outs = {
            "steps": ([np.zeros((3, 2)), np.zeros(8)[::2]], False),
            "None": ([None, np.zeros(4)], False),
            "parts of one array": ([memory[:6].reshape(3, 2), memory[6:]], True),
        }
        for name, (given, is_fast) in outs.items():
            before = fast_calls(comm)
            found = comm.allreduce_many(mine, out=given)
            assert fast_calls(comm) - before == is_fast, name
            assert found[0].tolist() == [[3.0, 3.0]] * 3
            assert found[1].tolist() == [0.0, 2.0, 4.0, 6.0]
        # Only half of the array is that of the source.
        shifted = np.arange(9.0)
        (found,) = comm.allreduce_many([shifted[:6]], out=[shifted[3:]])
        assert found.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_wrong_arguments_are_told_as_ever():
    with open_communicator() as comm:
        twice, x = np.zeros(3), [np.ones(3), np.ones(3)]
        wrong = [
            ({"out": [twice, twice]}, "more than once"),
            ({"out": [twice]}, "2 arrays, 1 in out="),
            ({"out": [twice, np.zeros(4)]}, r"shape \(4,\)"),
            ({"out": [twice, np.zeros(3, "f4")]}, "dtype float32"),
            ({"out": [twice, read_only(np.zeros(3))]}, "writeable"),
            ({"bucket_bytes": 0}, "bucket_bytes=0"),
            ({"bucket_bytes": -(2**40)}, "bucket_bytes=-1"),
            ({"op": "add"}, "op='add'"),
        ]
        for options, text in wrong:
            with pytest.raises(UsageError, match=text):
                comm.allreduce_many(x, **options)
        with pytest.raises(TypeError, match="a dict in place"):
            comm.allreduce_many({"a": x[0]})
        with pytest.raises(TypeError, match="bucket"):
            comm.allreduce(x[0], bucket_bytes=8)
        assert comm.allreduce_many(x, bucket_bytes=2**40)[0].tolist() == [2.0] * 3


@pytest.mark.mpi(ranks=3, timeout_s=60)
@pytest.mark.parametrize(
    "other",
    [
        lambda x: ([*x[:2], np.ones((4, 3), "f4"), *x[3:]],),
        lambda x: (x[:-1],),
        lambda x: ([one.astype("f8") for one in x],),
        lambda x: (x, "max"),
        lambda x: (x, "sum", 1000),
    ],
)
def test_lists_that_differ_are_told_on_all_ranks(other):
    with open_communicator() as comm:
        mine = [one for one in arrays(comm.rank) if one.size]
        values, *more = other(mine) if comm.rank == 1 else (mine,)
        options = dict(zip(("op", "bucket_bytes"), more, strict=False))
        for method in MANY:
            outs = [np.full_like(one, 7) for one in values]
            with pytest.raises(MismatchError, match="allreduce_many"):
                call(comm, method, values, **options, out=outs)
            assert all((one == 7).all() for one in outs), "nothing is written"
        check(comm, mine)


@pytest.mark.mpi(ranks=3, timeout_s=60)
def test_both_ways_meet():
    with open_communicator() as comm:
        mine = [np.arange(12.0).reshape(3, 4), np.ones(5)]
        values = [np.asfortranarray(mine[0]), mine[1]] if comm.rank == 1 else mine
        for op in ("sum", "mean"):
            want = [one * (3 if op == "sum" else 1) for one in mine]
            for got, one in zip(comm.allreduce_many(values, op), want, strict=True):
                assert got.tobytes() == one.tobytes()


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_users_list_may_change_while_its_call_is_under_way():
    with open_communicator() as comm:
        for _ in range(5):
            mine = [np.full(500, comm.rank + 1.0) for _ in range(9)]
            world().Barrier()
            if comm.rank == 0:
                work = comm.iallreduce_many(mine)
                mine.clear()
                rubbish = [np.full(500, 99.0) for _ in range(9)]
                world().Barrier()
                del rubbish
            else:
                world().Barrier()
                work = comm.iallreduce_many(mine)
            assert all((one == 3.0).all() for one in work.wait(timeout=10.0))


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_late_peer_and_calls_behind():
    with open_communicator() as comm:
        mine = arrays(comm.rank)
        want = slow(comm, mine, method="allreduce_many")
        for turn in range(4):
            if comm.rank == turn % 2:
                time.sleep(0.05)
            found = comm.allreduce_many(mine)
            works = [comm.iallreduce_many(mine) for _ in range(3)]
            total = comm.iallreduce(np.ones(3))
            assert total.wait(timeout=10.0).tolist() == [2.0] * 3
            for some in (found, *(work.wait(timeout=10.0) for work in works)):
                for got, one in zip(some, want, strict=True):
                    assert_equal(got, one)


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_peer_that_does_not_come_is_named():
    comm = open_communicator()
    if comm.rank == 0:
        text = "ranks that did not come: 1"
        with pytest.raises(CommunicationTimeoutError, match=text):
            comm.allreduce_many(arrays(), timeout=0.5)
    else:
        time.sleep(2)
        with pytest.raises(CommunicationError, match="rank 0 gave up"):
            comm.barrier()
    drop(comm)


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_they_are_recorded_as_ever():
    with open_communicator() as comm:
        mine = arrays(comm.rank)
        slow(comm, mine, "max", method="allreduce_many")
        comm.allreduce_many(mine, "max")
        general, native = comm.records()[-2:]
        for name in ("op", "reduction", "dtype", "nbytes", "state"):
            assert getattr(native, name) == getattr(general, name), name
        assert native.nbytes == sum(one.nbytes for one in mine)


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_nothing_is_kept():
    with open_communicator() as comm:
        mine, outs = list(np.ones((5, 7))), list(np.empty((5, 7)))
        kept = []
        # The first call whose peer is late loads modules, which refer to None, too.
        for _ in range(3):
            before = [sys.getrefcount(one) for one in (mine[0], outs[0], mine, outs, None)]
            for _ in range(200):
                comm.allreduce_many(mine, out=outs)
                comm.allreduce_many(mine)
            after = [sys.getrefcount(one) for one in (mine[0], outs[0], mine, outs, None)]
            assert after[:4] == before[:4]
            kept.append(abs(after[4] - before[4]))
        assert min(kept) < 100, kept
