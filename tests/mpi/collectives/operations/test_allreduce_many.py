"""Lists of arrays of any kind have the results of their arrays alone, whatever carries them."""

import os
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from mpistrat.collectives import Communicator, register_backend
from mpistrat.collectives.backends.shm import ShmBackend
from mpistrat.testing.backends.samples import get_dtype

GRID = np.arange(12, dtype=np.float32).reshape(3, 4)


class Inexact(ShmBackend):
    """One that leaves to others how half types and short integers are summed."""

    def capabilities(self):
        return replace(super().capabilities(), exact=False)


def world():
    """Return the job; on the ranks only, since importing mpi4py starts MPI."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


KINDS = pytest.mark.parametrize("kind", ["shm", "inexact", "hierarchical", "mpi"])


@contextmanager
def opened(kind):
    """Open a communicator of `kind`; a hierarchical one has a node for each rank."""
    size = "1" if kind == "hierarchical" else "2"
    with mock.patch.dict(os.environ, MPISTRAT_NODE_SIZE=size):
        if kind == "inexact":
            register_backend(kind, f"{__name__}:Inexact")
        with Communicator(world(), kind) as comm:
            yield comm


def odd_address(array):
    bytes_ = np.zeros(array.nbytes + 1, np.uint8)[1:]
    found = bytes_.view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def read_only(array):
    found = array.copy()
    found.flags.writeable = False
    return found


def layouts():
    """Return lists of one dtype and of several, some of whose values need a copy first."""
    alike = [GRID, GRID[1:], np.array(3, np.float32), np.zeros((0, 5), np.float32)]
    half, brain = GRID.astype(np.float16) / 3, (GRID / 3).astype(get_dtype("bfloat16"))
    return {
        "alike": [*alike, read_only(GRID)],
        "one": alike[:1],
        "Fortran order": [*alike, GRID.T],
        "strided": [GRID[:, ::2], GRID],
        "an odd address": [odd_address(GRID), GRID],
        "subclasses": [GRID, np.float32(2), np.asmatrix(GRID)],
        "no arrays": ([1.5, 2.5], 3.0, np.arange(3.0)),
        "short integers": [np.int8([100, 3]), np.arange(5, dtype=np.int8)],
        "two kinds of an integer": [np.arange(3, dtype="l"), np.arange(3, dtype="q")],
        "bool": [GRID > 3, np.ones(7, bool)],
        "bool of other bytes": [np.array([2], np.uint8).view(bool), np.zeros(2, bool)],
        "halves": [half, half[0]],
        "all halves": [half, brain, GRID / 3],
        "mixed": [np.int8([100]), GRID, np.int32([1000]), GRID.astype(complex), np.int8([1])],
        "NaN and zeros": [np.array([np.nan, -0.0, 0.0]), np.array([0.0, -0.0, -np.nan])],
        "none": [],
    }


def mapped(like):
    """Return an array in a file."""
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, like.dtype, "w+", shape=(like.size,)).reshape(like.shape)


def check(got, want, *what):
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    assert got.tobytes() == want.tobytes(), (what, got, want)


@KINDS
@pytest.mark.mpi(ranks=2, timeout_s=60)
@pytest.mark.parametrize("op", ["sum", "mean", "max", "prod"])
def test_results_are_those_of_the_arrays_alone(kind, op):
    with opened(kind) as comm:
        for name, values in layouts().items():
            if op == "max" and any(np.asarray(value).dtype.kind == "c" for value in values):
                continue
            alone = [comm.allreduce(value, op) for value in values]
            for one, other in zip(alone, comm.allreduce_many(values, op), strict=True):
                check(other, one, name, op)
                assert type(other) is np.ndarray
                other[...] = 0  # it is the caller's own
            generated = comm.allreduce_many((value for value in values), op)
            for one, other in zip(alone, generated, strict=True):
                check(other, one, name, op, "of a generator")


@KINDS
@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_results_go_into_what_is_given(kind):
    with opened(kind) as comm:
        ways = {
            "arrays": np.zeros_like,
            "an order of their own": lambda like: np.zeros_like(like, order="F"),
            "strides": lambda like: np.zeros((*like.shape, 2), like.dtype)[..., 0],
            "files": mapped,
            "matrices": lambda like: (
                np.zeros_like(like).view(np.matrix) if like.ndim == 2 else None
            ),
        }
        lists = {
            name: layouts()[name] for name in ("alike", "one", "mixed", "all halves", "strided")
        }
        for name, values in lists.items():
            alone = [comm.allreduce(value) for value in values]
            for way, make in ways.items():
                for chosen in (slice(None), slice(0, None, 2), slice(1, None, 2)):
                    outs = [None] * len(alone)
                    outs[chosen] = [make(one) if one.size else None for one in alone[chosen]]
                    found = comm.allreduce_many(values, out=outs)
                    for one, out, got in zip(alone, outs, found, strict=True):
                        check(got, one, name, way, chosen)
                        assert out is None or got is out


@KINDS
@pytest.mark.mpi(ranks=2)
def test_results_take_the_place_of_their_sources(kind):
    with opened(kind) as comm:
        arrays = [np.full(5, 1.0 + comm.rank), np.full((2, 3), 10, np.int32), np.full(3, 2.0)]
        found = comm.allreduce_many(arrays, out=arrays)
        assert all(one is other for one, other in zip(found, arrays, strict=True))
        assert [float(one.min()) for one in arrays] == [3, 20, 4]
        parts = np.arange(8.0).reshape(2, 4)
        comm.allreduce_many(list(parts), out=list(parts))
        assert parts.tolist() == [[0, 2, 4, 6], [8, 10, 12, 14]]


@KINDS
@pytest.mark.mpi(ranks=2)
def test_ranks_may_hold_their_arrays_differently(kind):
    with opened(kind) as comm:
        mine = {
            0: [GRID, np.arange(3, dtype="l"), GRID],
            1: [np.asfortranarray(GRID), np.arange(3, dtype="q"), np.asmatrix(GRID)],
        }[comm.rank]
        first, second, third = comm.allreduce_many(mine)
        check(first, GRID * 2)
        check(second, np.arange(3) * 2)
        check(third, GRID * 2)
        alike = GRID if comm.rank == 0 else odd_address(GRID)
        for got in comm.allreduce_many([alike, GRID], "mean"):
            check(got, GRID)
