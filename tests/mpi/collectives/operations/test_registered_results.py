"""Registered memory, of each rank or shared, as the result of collectives that move arrays."""

import numpy as np
import pytest

from helpers.collectives.registered_memory import COUNTS, filled, inputs, world
from mpistrat.collectives import Communicator
from mpistrat.testing.backends.samples import assert_same


@pytest.mark.mpi(ranks=[2, 3])
@pytest.mark.parametrize("is_shared", [False, True])
def test_results_of_what_is_moved(is_shared):
    with Communicator(world(), "shm") as comm:
        for count in COUNTS:
            arrays = inputs(comm, count * comm.size)
            mine, last = arrays[comm.rank], comm.size - 1
            everything = np.concatenate(arrays)
            for send in (mine, filled(comm, mine)):
                recv = comm.empty(everything.shape, everything.dtype, shared=is_shared)
                recv[:] = 0
                comm.barrier()
                assert comm.allgather(send, out=recv) is recv
                assert_same(np.array(recv), everything, "all-gather")
                comm.barrier()
                place = recv[: mine.size]
                place[:] = 0
                comm.barrier()
                assert comm.bcast(send, last, out=place) is place
                assert_same(np.array(place), arrays[last], "broadcast")
                comm.barrier()
                if comm.rank == 0:
                    recv[:] = 0
                got = comm.gather(send, 0, out=recv if comm.rank == 0 else None)
                if comm.rank == 0:
                    assert got is recv
                    assert_same(np.array(recv), everything, "gather")
                comm.barrier()
                if is_shared:  # the results that follow are not the same on all ranks
                    continue
                piece = recv[:count]
                assert comm.scatter(send if comm.rank == last else None, last, out=piece) is piece
                assert_same(
                    np.array(piece), np.split(arrays[last], comm.size)[comm.rank], "scatter"
                )
                assert comm.alltoall(send, out=place) is place
                pieces = [np.split(array, comm.size)[comm.rank] for array in arrays]
                assert_same(np.array(place), np.concatenate(pieces), "all-to-all")
                assert comm.reduce_scatter(send, out=piece) is piece
                assert_same(np.array(piece), sum(pieces), "reduce-scatter")
