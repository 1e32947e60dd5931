"""Arguments that cannot be right, on real ranks: an error on each that says what was meant."""

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.errors import ArgumentTypeError, BackendUnavailableError, MismatchError

pytestmark = pytest.mark.mpi(ranks=2)


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


def test_the_array_of_a_list_that_cannot_be_sent_is_named():
    with Communicator() as comm:
        arrays = [np.ones(2), np.ones(3), np.ones(4) if comm.rank else None]
        expected = MismatchError if comm.rank else ArgumentTypeError
        with pytest.raises(expected, match="array 2 of the list: None is no array"):
            comm.allreduce_many(arrays)
        assert comm.allreduce(1) == comm.size
