"""Reductions over one rank are copies, as fast as those, and leave what they are given alone."""

from functools import partial

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.testing.backends.samples import (
    DTYPES,
    SHAPES,
    assert_same,
    expected_reduction,
    ops_for,
    sample,
)


@pytest.fixture
def comm():
    with Communicator() as one:
        assert one.size == 1
        yield one


def in_a_list(comm, array, op, out):
    return comm.allreduce_many([array], op, out=None if out is None else [out])[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_ops(comm, dtype):
    for op in ops_for(dtype):
        for shape in SHAPES:
            mine = sample(dtype, shape, 0)
            mine.flags.writeable = False
            want = expected_reduction(op, [mine])
            out = np.empty(shape, want.dtype)
            steps = np.empty((*shape, 2), want.dtype)[..., 0]
            for call in (comm.allreduce, partial(in_a_list, comm)):
                found = call(mine, op, out=None)
                assert_same(found, want, f"{op} of {dtype} {shape}")
                assert not np.may_share_memory(found, mine)
                for given in (out, steps):
                    assert call(mine, op, out=given) is given
                    assert_same(given, want, f"{op} of {dtype} {shape} in out")


def test_in_place_and_overlapping(comm):
    mine = np.arange(10.0)
    assert comm.allreduce(mine, out=mine) is mine
    assert (mine == np.arange(10)).all()
    assert comm.allreduce(mine[:-1], out=mine[1:]).tolist() == [*range(9)]
    backwards = np.arange(4.0)
    assert comm.allreduce(backwards, out=backwards[::-1]).tolist() == [0, 1, 2, 3]


def test_zeros_keep_or_lose_their_sign_as_on_more_ranks(comm):
    zeros = np.array([-0.0, 0.0])
    assert np.signbit(comm.allreduce(zeros, "sum")).tolist() == [True, False]
    assert np.signbit(comm.allreduce(zeros, "max")).tolist() == [False, False]
    assert np.signbit(zeros).tolist() == [True, False]
