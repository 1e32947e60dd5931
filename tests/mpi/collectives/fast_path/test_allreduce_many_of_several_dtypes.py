"""Lists of arrays of several dtypes: made natively, a transfer for each dtype."""

import time

import numpy as np
import pytest

from helpers.collectives.fast_path import (
    assert_equal,
    drop,
    fast_calls,
    open_communicator,
    slow,
)
from mpistrat.collectives import Work
from mpistrat.errors import CommunicationError, CommunicationTimeoutError, MismatchError
from mpistrat.testing.backends.samples import get_dtype

MANY = ("allreduce_many", "iallreduce_many")
DTYPES = ("f2", "f4", "i8")  # as of gradients in mixed precision, and counters
SHAPES = [(3, 4), (), (5,), (2, 0), (700,), (1, 2, 3), (4,)]


def arrays(rank=0, dtypes=DTYPES):
    random = np.random.default_rng(rank)
    return [
        np.asarray(random.random(shape) * 9).astype(dtypes[i % len(dtypes)])
        for i, shape in enumerate(SHAPES)
    ]


def call(comm, method, *arguments, **options):
    found = getattr(comm, method)(*arguments, **options)
    return found.wait(timeout=20.0) if isinstance(found, Work) else found


def assert_all_equal(found, want, what=""):
    for got, one in zip(found, want, strict=True):
        assert_equal(got, one, what)


def check(comm, values, *arguments, is_fast=True, **options):
    """Compare the blocking and the nonblocking call with the general way, and where they went."""
    want = slow(comm, values, *arguments, method="allreduce_many", **options)
    for method in MANY:
        before = fast_calls(comm)
        found = call(comm, method, values, *arguments, **options)
        assert fast_calls(comm) - before == is_fast, (method, arguments, options)
        assert type(found) is list
        assert_all_equal(found, want, method)


def delay(comm, seconds, which):
    """Let this rank's general way come late to transfer `which` of each list; 0 is the first."""
    whole, transfers = comm.backend.allreduce_pieces, []

    def late(*arguments, header=False, **options):
        transfers.append(None)
        if header:
            transfers.clear()
        if len(transfers) == which:
            time.sleep(seconds)
        return whole(*arguments, header=header, **options)

    comm.backend.allreduce_pieces = late


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("backend", ["shm", "hierarchical"])
def test_results_are_those_of_the_general_way(backend):
    with open_communicator(backend) as comm:
        mine = arrays(comm.rank)
        check(comm, mine)
        check(comm, tuple(mine), "prod", bucket_bytes=1000)
        check(comm, mine, "max")
        check(comm, arrays(comm.rank, ("f4", get_dtype("bfloat16"), "f8")), "mean")
        check(comm, arrays(comm.rank, ("bool", "i1", "u4")), "xor")
        check(comm, arrays(comm.rank, ("c8", "f2", "c16")))


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("backend", ["shm", "hierarchical"])
def test_results_go_into_what_is_given(backend):
    with open_communicator(backend) as comm:
        mine = [one for one in arrays(comm.rank) if one.size]
        want = slow(comm, mine, method="allreduce_many")
        for method in MANY:
            outs = [np.zeros_like(one) for one in mine]
            for values, places in ((mine, outs), (outs, outs)):
                for out, one in zip(outs, mine, strict=True):
                    out[...] = one
                before = fast_calls(comm)
                found = call(comm, method, values, out=tuple(places))
                assert fast_calls(comm) == before + 1
                assert all(got is out for got, out in zip(found, outs, strict=True))
                assert_all_equal(found, want, method)


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_what_is_unusual_goes_the_general_way():
    with open_communicator() as comm:
        one = np.arange(4.0)
        unusual = {
            "two numbers of one dtype": [np.arange(4), np.arange(4, dtype="longlong")],
            "none of a dtype": [one, np.zeros(0, "f4")],
            "another order": [one, np.ones((3, 2), "f4", order="F")],
        }
        for name, values in unusual.items():
            before = fast_calls(comm)
            for got, value in zip(comm.allreduce_many(values), values, strict=True):
                assert got.dtype == value.dtype, name
                assert got.tolist() == (2 * value).tolist(), name
            assert fast_calls(comm) == before, name
        before = fast_calls(comm)
        found = comm.allreduce_many([one, np.arange(4) + comm.rank], "mean")
        assert [some.dtype for some in found] == [np.float64] * 2
        assert found[1].tolist() == [0.5, 1.5, 2.5, 3.5]
        assert fast_calls(comm) == before, "a mean of integers"


@pytest.mark.mpi(ranks=3, timeout_s=60)
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("given", [False, True])
def test_a_rank_that_comes_late_to_one_of_the_transfers(which, given):
    with open_communicator() as comm:
        mine = [one for one in arrays(comm.rank) if one.size]
        want = slow(comm, mine, method="allreduce_many")
        if comm.rank == 1:
            delay(comm, 0.04, which)
        for method in MANY:
            outs = [np.empty_like(one) for one in mine] if given else None
            before = fast_calls(comm)
            if comm.rank == 1:
                options = {"method": method, "out": outs}
                found = slow(comm, mine, **options)
                behind = comm.iallreduce(np.ones(3))
                found = found.wait(timeout=20.0) if isinstance(found, Work) else found
            else:
                found = getattr(comm, method)(mine, out=outs)
                assert fast_calls(comm) == before + 1
                behind = comm.iallreduce(np.ones(3))
                found = found.wait(timeout=20.0) if isinstance(found, Work) else found
            assert_all_equal(found, want, method)
            assert behind.wait(timeout=20.0).tolist() == [3.0] * 3
            assert comm.allreduce(1.0) == 3.0
            states = [record.state for record in comm.records()[-3:]]
            assert states == ["done"] * 3
            numbers = [record.sequence for record in comm.records()[-3:]]
            assert numbers == list(range(numbers[0], numbers[0] + 3))
        if comm.rank != 1:
            before = fast_calls(comm)
            found = comm.allreduce_many(mine)
            assert fast_calls(comm) == before + 1, "fast calls go on"
        else:
            found = slow(comm, mine, method="allreduce_many")
        assert_all_equal(found, want)


@pytest.mark.mpi(ranks=3, timeout_s=60)
def test_both_ways_meet():
    with open_communicator() as comm:
        mine = arrays(comm.rank)
        want = slow(comm, mine, method="allreduce_many")
        for turn in range(6):
            if comm.rank == turn % 3:
                found = slow(comm, mine, method="allreduce_many")
            else:
                found = comm.allreduce_many(mine)
            assert_all_equal(found, want)


@pytest.mark.mpi(ranks=3, timeout_s=60)
@pytest.mark.parametrize(
    "other",
    [
        lambda x: [one.astype(dtype) for one, dtype in zip(x, ("f4", "f2"), strict=True)],
        lambda x: [x[0], x[1].astype("f8")],
        lambda x: [x[0], x[1].astype("f2")],
        lambda x: x[::-1],
    ],
)
def test_lists_that_differ_are_told_on_all_ranks(other):
    with open_communicator() as comm:
        mine = [np.ones(6, "f2"), np.ones(6, "f4")]
        comm.allreduce_many(mine)
        values = other(mine) if comm.rank == 1 else mine
        for method in MANY:
            outs = [np.full_like(one, 7) for one in values]
            with pytest.raises(MismatchError, match="allreduce_many"):
                call(comm, method, values, out=outs)
            assert all((one == 7).all() for one in outs), "nothing is written"
        check(comm, mine)


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_peer_that_does_not_come_to_the_second_transfer():
    comm = open_communicator()
    mine = arrays(comm.rank)
    if comm.rank == 0:
        before = fast_calls(comm)
        with pytest.raises(CommunicationTimeoutError, match="allreduce_many"):
            comm.allreduce_many(mine, timeout=0.5)
        assert fast_calls(comm) == before + 1
    else:
        delay(comm, 2.0, 1)
        with pytest.raises(CommunicationError, match="rank 0 gave up"):
            slow(comm, mine, method="allreduce_many")
    drop(comm)


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_one_record_tells_of_all_dtypes():
    with open_communicator() as comm:
        mine = arrays(comm.rank)
        slow(comm, mine, "max", method="allreduce_many")
        comm.allreduce_many(mine, "max")
        general, native = comm.records()[-2:]
        assert native.sequence == general.sequence + 1
        for name in ("op", "reduction", "dtype", "nbytes", "state"):
            assert getattr(native, name) == getattr(general, name), name
        assert native.nbytes == sum(one.nbytes for one in mine)
