"""The fast path of ``communicator.allreduce``: forms of the call, and where its result goes.

``comm.allreduce`` takes the short way for plain arrays; `slow` never does. Results are the same.
"""

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
from mpistrat.errors import MismatchError, UsageError


@pytest.mark.mpi(ranks=2)
def test_forms_of_the_call():
    with open_communicator() as comm:
        x = np.arange(10.0) + comm.rank
        for arguments, options in [
            ((x,), {}),
            ((x, "sum"), {}),
            ((x,), {"op": "max"}),
            ((x,), {"out": None, "timeout": None}),
            ((x,), {"timeout": 10}),
            ((x,), {"timeout": 0.5}),
            ((x, "mean"), {"timeout": None}),
            ((), {"array": x}),
            ((), {"op": "max", "array": x}),
            ((x, "".join(["s", "um"])), {}),  # a text that Python has not interned
        ]:
            check(comm, *arguments, is_fast=True, **options)
        for arguments, options in [
            ((x,), {"timeout": 0.4}),  # soon over, for a call that is waited for at first
            ((x,), {"timeout": np.float64(10)}),
            ((x, np.str_("sum")), {}),
        ]:
            check(comm, *arguments, is_fast=False, **options)
        call = comm.allreduce
        assert_equal(call(x), slow(comm, x))


@pytest.mark.mpi(ranks=2)
def test_calls_that_python_would_refuse():
    with open_communicator() as comm:
        x = np.ones(3)
        for arguments, options in [
            ((), {}),
            ((x, "sum", None), {}),
            ((x, "sum"), {"op": "sum"}),
            ((x,), {"array": x}),
            ((x,), {"into": x}),
        ]:
            with pytest.raises(TypeError, match="argument"):
                comm.allreduce(*arguments, **options)
        check(comm, x, is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_out():
    with open_communicator() as comm:
        for count in (5, 3000, 100_000):
            x = np.arange(count, dtype=np.float64) * (1 + comm.rank)
            want = slow(comm, x)
            out, before = np.empty_like(x), fast_calls(comm)
            assert comm.allreduce(x, out=out) is out
            assert_equal(out, want)
            assert comm.allreduce(out, "max", out=out) is out  # in place, of equal arrays
            assert_equal(out, want)
            assert fast_calls(comm) == before + 2
            for out in (
                np.empty(2 * count)[::2],
                np.zeros(count + 8, np.uint8).repeat(8)[1 : 1 + 8 * count].view(np.float64),
                np.empty(count)[::-1],
                np.matrix(np.empty(count)).A1.view(np.memmap),
            ):
                assert comm.allreduce(x, out=out) is out
                np.testing.assert_array_equal(out, want)
            assert fast_calls(comm) == before + 2
            square = np.asfortranarray(np.arange(12.0).reshape(3, 4))
            assert comm.allreduce(square, out=square) is square
            np.testing.assert_array_equal(square, comm.size * np.arange(12.0).reshape(3, 4))


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("count", [4, 3000, 100_000])
@pytest.mark.parametrize("shift", [-1, 1])
def test_out_that_overlaps_the_array_in_part(count, shift):
    with open_communicator() as comm:
        memory = np.arange(count + 2.0)
        x, out = memory[1 : count + 1], memory[1 + shift : count + 1 + shift]
        before = fast_calls(comm)
        assert comm.allreduce(x, out=out) is out
        assert fast_calls(comm) == before
        np.testing.assert_array_equal(out, 2.0 * np.arange(1, count + 1))


BAD_OUTS = {
    "shape": lambda: np.empty(4),
    "dimensions": lambda: np.empty((3, 1)),
    "dtype": lambda: np.empty(3, np.float32),
    "byte order": lambda: np.empty(3, ">f8"),
    "read-only": lambda: read_only(np.empty(3)),
    "a list": lambda: [0.0, 0.0, 0.0],
    "0-d": lambda: np.float64(0),
}


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("kind", BAD_OUTS)
def test_out_that_does_not_fit(kind):
    with open_communicator() as comm:
        with pytest.raises(UsageError, match="out"):
            comm.allreduce(np.ones(3), out=BAD_OUTS[kind]())
        if comm.rank == 0:  # the other one calls the short way
            with pytest.raises(UsageError, match="out"):
                comm.allreduce(np.ones(3), out=BAD_OUTS[kind]())
        else:
            with pytest.raises(MismatchError, match="a call that it refused"):
                comm.allreduce(np.ones(3))
        check(comm, np.ones(3), is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_results_are_new_and_nothing_is_kept():
    with open_communicator() as comm:
        x, out = np.ones(1000), np.empty(1000)
        first, second = comm.allreduce(x), comm.allreduce(x)
        assert first.flags.owndata
        assert not np.may_share_memory(first, second)
        kept = []
        # The first call whose peer is late loads modules, which refer to None, too.
        for _ in range(3):
            before = sys.getrefcount(x), sys.getrefcount(out), sys.getrefcount(None)
            for _ in range(200):
                comm.allreduce(x, out=out)
                comm.allreduce(x, "max")
            after = sys.getrefcount(x), sys.getrefcount(out), sys.getrefcount(None)
            assert after[:2] == before[:2]
            kept.append(abs(after[2] - before[2]))
        assert min(kept) < 100, kept
