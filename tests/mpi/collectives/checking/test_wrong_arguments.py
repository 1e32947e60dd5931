"""Arguments that cannot be right, on real ranks: an error on each that says what was meant."""

import copy
import pickle

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.errors import ArgumentTypeError, BackendUnavailableError, MismatchError, UsageError

pytestmark = pytest.mark.mpi(ranks=2)

X = np.ones(2)


def mpi():
    """Return mpi4py's module; on the ranks only, since importing it starts MPI."""
    from mpi4py import MPI

    return MPI


@pytest.mark.parametrize("backend", ["auto", "shm", "mpi", "hierarchical"])
def test_a_communicator_of_no_ranks(backend):
    some = mpi().COMM_WORLD.Split(0 if mpi().COMM_WORLD.rank == 0 else mpi().UNDEFINED)
    if mpi().COMM_WORLD.rank == 0:
        with Communicator(some) as alone:
            assert alone.size == 1
        some.Free()  # which leaves COMM_NULL here, too
    with pytest.raises(
        BackendUnavailableError, match=r"comm is MPI\.COMM_NULL: this process is not"
    ):
        Communicator(some, backend)


@pytest.mark.parametrize("what", ["COMM_WORLD", 3])
def test_what_is_no_communicator(what):
    with pytest.raises(BackendUnavailableError, match="expected an mpi4py intra-communicator"):
        Communicator(what)


@pytest.mark.parametrize(("name", "meant"), [("SUM", "sum"), ("BAND", "and"), ("MAX", "max")])
def test_an_op_of_mpi(name, meant):
    with Communicator() as comm, pytest.raises(ArgumentTypeError, match=f"here it is '{meant}'$"):
        comm.allreduce(np.ones(2, "i4"), getattr(mpi(), name))


@pytest.mark.parametrize(
    ("arrays", "out", "told"),
    [
        ({0: np.ones(2)}, None, r"a dict in place of a list of arrays; expected list\(values"),
        ({1.0, 2.0}, None, "a set in place of a list of arrays; expected a list"),
        (3, None, "a int in place of a list of arrays"),
        ([np.ones(2)] * 3, [X, np.empty(2), X], r"out\[0\] is in out= more than once"),
    ],
)
def test_lists_that_are_none(arrays, out, told):
    with Communicator() as comm:
        with pytest.raises(UsageError, match=told):
            comm.allreduce_many(arrays, out=out)
        assert comm.allreduce(1) == comm.size


def test_a_list_with_one_array_twice_and_no_out():
    with Communicator() as comm:
        found = comm.allreduce_many([X, X], out=[None, None])
        assert [one.tolist() for one in found] == [[2, 2], [2, 2]]


@pytest.mark.parametrize("shape", [(2**40, 2**40), 2**62, 2**50])
def test_memory_that_nobody_has(shape):
    with Communicator() as comm:
        with pytest.raises((UsageError, BackendUnavailableError), match="memory"):
            comm.empty(shape)
        assert comm.allreduce(1) == comm.size


def test_a_communicator_of_another_one():
    with Communicator(mpi().COMM_WORLD, "mpi") as first, Communicator(first) as second:
        assert (second.rank, second.size) == (first.rank, first.size)
        assert second.allreduce(1) == second.size


def test_a_communicator_of_what_was_freed():
    user = mpi().COMM_WORLD.Dup()
    with Communicator(user) as comm:
        user.Free()
        assert comm.allreduce(1) == comm.size
        with pytest.raises(BackendUnavailableError, match="or it was freed"):
            Communicator(comm)


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_communicator_is_not_copied(take):
    with Communicator() as comm:
        with pytest.raises(TypeError, match="can neither be pickled nor copied"):
            take(comm)
        assert comm.allreduce(1) == comm.size


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5", True])
def test_a_timeout_that_is_none(timeout):
    with Communicator() as comm:
        with pytest.raises(UsageError, match="expected seconds above 0, or None"):
            comm.barrier(timeout=timeout)
        assert comm.allreduce(1) == comm.size


def test_the_array_of_a_list_that_cannot_be_sent_is_named():
    with Communicator() as comm:
        arrays = [np.ones(2), np.ones(3), np.ones(4) if comm.rank else None]
        expected = MismatchError if comm.rank else ArgumentTypeError
        with pytest.raises(expected, match="array 2 of the list: None is no array"):
            comm.allreduce_many(arrays)
        assert comm.allreduce(1) == comm.size
