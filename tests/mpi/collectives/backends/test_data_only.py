"""A backend that moves data and brings no control: it is given MPI's."""

import numpy as np
import pytest

from mpistrat.collectives import Communicator, register_backend, shutdown
from mpistrat.collectives.backends.mpi import MpiBackend
from mpistrat.errors import MismatchError, PeerLostError


class DataOnly(MpiBackend):
    """MPI's collectives, without its headers, notices and watch."""

    name = "data only"

    def __init__(self, comm):
        super().__init__(comm)
        del self.control


def opened():
    from mpi4py import MPI

    register_backend("data only", f"{__name__}:DataOnly")
    comm = Communicator(MPI.COMM_WORLD, "data only")
    assert comm.backend.name == "data only"
    assert not hasattr(comm.backend, "control")
    return comm


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_calls_are_carried_and_compared():
    with opened() as comm:
        total = sum(range(1, comm.size + 1))
        for count in (1, 3000):
            got = comm.allreduce(np.full(count, comm.rank + 1.0))
            np.testing.assert_array_equal(got, np.full(count, float(total)))
        assert comm.allgather(np.full(comm.rank, comm.rank)).tolist() == [
            rank for rank in range(comm.size) for _ in range(rank)
        ]
        with pytest.raises(MismatchError, match=r"rank 0: allreduce\(.*\n.*barrier\(\)"):
            comm.allreduce(1) if comm.rank == 0 else comm.barrier()
        assert comm.allreduce(1) == comm.size


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_rank_that_fails_tells_the_others_by_notices():
    comm = opened()
    if comm.rank == 0:
        comm.fail(ValueError("on this rank only"))
    else:
        with pytest.raises(PeerLostError, match="rank 0 failed with ValueError: on this rank"):
            comm.barrier(timeout=20)
    shutdown.forget(comm)
    comm.health.closed = True  # the ranks cannot close it together; the job is to end well
