"""Objects of all sizes: in the frame, just beyond it, of one length or of many."""

import pickle
import time
from threading import Thread

import numpy as np
import pytest

from helpers.mistakes import refused
from mpistrat.collectives import Communicator
from mpistrat.collectives.operations.objects import FRAME_BYTES
from mpistrat.errors import (
    ArgumentTypeError,
    MismatchError,
    UsageError,
)
from mpistrat.system.waiting import wait_until
from mpistrat.testing.tasks import spool

pytestmark = pytest.mark.mpi(ranks=[2, 3])
IN_FRAME = FRAME_BYTES - 8


def world():
    """Return the job; on the ranks only, since importing mpi4py starts MPI."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


def packed_to(nbytes):
    """Return an object that has so many bytes when it is pickled."""
    for length in range(nbytes):
        value = bytes(length)
        if len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)) == nbytes:
            return value
    raise AssertionError(nbytes)


SIZES = (64, IN_FRAME - 1, IN_FRAME, IN_FRAME + 1, FRAME_BYTES, FRAME_BYTES + 1, 5000, 1 << 20)


@pytest.mark.parametrize("backend", ["auto", "mpi"])
def test_objects_of_any_length(backend):
    with Communicator(world(), backend) as comm:
        for nbytes in SIZES:
            value = packed_to(nbytes) if nbytes < 600 else bytes(range(250)) * (nbytes // 250)
            for root in range(comm.size):
                assert comm.bcast_object(value if comm.rank == root else None, root) == value
            assert comm.allgather_object(value) == [value] * comm.size


@pytest.mark.parametrize("backend", ["auto", "mpi"])
def test_objects_of_lengths_that_differ(backend):
    with Communicator(world(), backend) as comm:
        for lengths in ([3, 5000, 9], [300, 301, 302], [1 << 18, 0, 7], [40_000, 44_000, 41_000]):
            values = [f"{rank}" * length for rank, length in enumerate(lengths)][: comm.size]
            assert comm.allgather_object(values[comm.rank]) == values


class Mine:
    """A class of the program, as a test is: others may not find it by its name."""

    def __init__(self, value):
        self.value = value


def test_objects_that_are_not_plain():
    with Communicator(world()) as comm:
        factor = comm.rank + 2
        functions = comm.allgather_object(lambda x: x * factor)
        assert [function(10) for function in functions] == [10 * (r + 2) for r in range(comm.size)]
        found = comm.bcast_object([Mine(np.arange(500)), {1, 2}, 3 + 4j], root=1)
        assert (found[0].value == np.arange(500)).all()
        assert found[1:] == [{1, 2}, 3 + 4j]
        assert comm.allgather_object(np.float32(comm.rank)) == list(range(comm.size))


def test_what_cannot_be_pickled_is_refused_on_all_ranks():
    with Communicator(world()) as comm:
        bad = (i for i in range(3))
        error = ArgumentTypeError if comm.rank == 1 else MismatchError
        with refused(error, "cannot be pickled"):
            comm.allgather_object(bad if comm.rank == 1 else "good")
        with refused(error, "cannot be pickled"):
            comm.bcast_object(bad, root=1)
        assert comm.allgather_object(comm.rank) == list(range(comm.size))


def test_a_frame_is_no_array_of_its_length():
    """The same shape and dtype, but another operation."""
    with Communicator(world()) as comm:
        for _ in range(2):  # the second time from the kernels' cached tickets
            with refused(MismatchError, "bcast_object"):
                if comm.rank == 0:
                    comm.bcast_object("x")
                else:
                    comm.bcast(np.zeros(FRAME_BYTES, np.uint8))
            with refused(MismatchError, "allgather_object"):
                if comm.rank == 0:
                    comm.allgather(np.zeros(FRAME_BYTES, np.uint8))
                else:
                    comm.allgather_object("x")
            with refused(MismatchError, "root=1"):
                comm.bcast_object("x", root=1 if comm.rank == 0 else 0)
            assert comm.allgather_object("x") == ["x"] * comm.size


@pytest.mark.parametrize("root", ["0", 1.0, True, -1, 99, np.array([0, 1])], ids=str)
def test_a_root_that_is_none_on_one_rank(root):
    with Communicator(world()) as comm:
        with refused((ArgumentTypeError, UsageError, MismatchError), "root="):
            comm.bcast_object("x", root if comm.rank == 1 else 0)
        assert comm.allgather_object(comm.rank) == list(range(comm.size))


def test_records_say_what_was_brought():
    with Communicator(world()) as comm:
        for value in ("x", "x" * 1000):
            comm.bcast_object(value)
            comm.allgather_object(value)
        records = comm.records()[-4:]
        assert [record.op for record in records] == ["bcast_object", "allgather_object"] * 2
        assert {(record.dtype, record.state) for record in records} == {(None, "done")}
        short, all_short, long, all_long = (record.nbytes for record in records)
        is_root = comm.rank == 0
        assert (0 < short < 50, long > 1000) == (is_root, is_root)
        assert 0 < all_short < 50
        assert all_long > 1000


@pytest.mark.parametrize("backend", ["auto", "mpi"])
def test_a_long_object_is_not_parted_by_calls_of_another_thread(backend):
    """They begin in one order on all ranks, though rank 0 begins both before the others come."""
    with Communicator(world(), backend) as comm:
        for turn in range(3):
            if comm.rank:
                time.sleep(0.2)
            check_two_threads(comm, (turn, "x" * 5000))


def check_two_threads(comm, value):
    """Broadcast an object in a thread, and reduce here once that has begun."""
    received = []
    mine = value if comm.rank == 0 else None
    thread = Thread(target=lambda: received.append(comm.bcast_object(mine)))
    before = len(comm.records())
    thread.start()
    wait_until(lambda: len(comm.records()) > before, 10, spool.pauses())
    total = comm.allreduce(np.ones(3))
    thread.join(10)
    assert (total == comm.size).all()
    assert received == [value]


def test_an_object_too_deep_is_refused():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with Communicator(world()) as comm, refused(ArgumentTypeError, "cannot be pickled"):
        comm.allgather_object(deep)
    while deep:  # one by one: to free it at once takes as deep a stack
        deep = deep[0]
