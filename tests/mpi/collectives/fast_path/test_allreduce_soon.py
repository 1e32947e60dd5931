"""``communicator.allreduce_soon``: at once where the peers are there, else later."""

import time

import numpy as np
import pytest

from helpers.collectives.fast_path import drop, open_communicator
from mpistrat.collectives import Communicator, Work
from mpistrat.errors import MismatchError, PeerLostError


def world():
    from mpi4py import MPI

    return MPI.COMM_WORLD


def end(begun):
    """Return the result of a call that may have to be waited for."""
    return begun.wait(timeout=10.0) if isinstance(begun, Work) else begun


@pytest.mark.mpi(ranks=[1, 2, 3])
@pytest.mark.parametrize("backend", ["mpi", "auto"])
@pytest.mark.parametrize("dtype", ["float32", "int16", "bool"])
def test_values(backend, dtype):
    with Communicator(world(), backend) as comm:
        for count in (0, 3, 30_011):
            mine = np.full(count, comm.rank, dtype)
            want = sum(np.full(count, rank, dtype) for rank in range(comm.size)).astype(dtype)
            place = np.empty_like(mine)
            assert end(comm.allreduce_soon(mine, out=place)) is place
            assert (place == want).all()


@pytest.mark.mpi(ranks=2)
def test_a_late_peer_is_not_waited_for():
    comm = open_communicator()
    data = np.full(9, comm.rank + 1.0)
    if comm.rank == 0:
        begun = comm.allreduce_soon(data)
        assert isinstance(begun, Work)
        world().Barrier()
        assert (end(begun) == 3.0).all()
    else:
        world().Barrier()
        assert (end(comm.allreduce_soon(data)) == 3.0).all()
    assert comm.allreduce(1) == 2
    comm.close()


@pytest.mark.mpi(ranks=2)
def test_calls_that_differ_are_errors_on_all_ranks():
    comm = open_communicator()
    with pytest.raises(MismatchError, match=r"shape=\(1,\).*\n.*shape=\(2,\)"):
        end(comm.allreduce_soon(np.ones(comm.rank + 1)))
    drop(comm)


@pytest.mark.mpi(ranks=2)
def test_a_peer_that_fails_meanwhile():
    comm = open_communicator()
    if comm.rank == 0:
        begun = comm.allreduce_soon(np.ones(2))
        world().Barrier()
        with pytest.raises(PeerLostError, match="of its own"):
            end(begun)
    else:
        world().Barrier()
        time.sleep(0.05)
        comm.end(ValueError("of its own"))
    drop(comm)
