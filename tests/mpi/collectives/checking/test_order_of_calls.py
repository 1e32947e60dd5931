"""Strategies called in different orders: the valid programs, which MPI allows as well.

The programs that cannot go on are in system/test_uncaught_errors.py.
"""

import numpy as np
import pytest

from mpistrat import MirroredStrategy

pytestmark = pytest.mark.mpi(ranks=[2, 3])


def test_asynchronous_calls_of_two_communicators_may_end_in_any_order() -> None:
    with MirroredStrategy() as first, MirroredStrategy() as second:
        rank = first.extended.communicator.rank
        work = first.extended.communicator.iallreduce(np.ones(100_000))
        if rank == 0:
            total = work.wait()
            second.extended.communicator.barrier()
        else:
            second.extended.communicator.barrier()
            total = work.wait()
        assert total.sum() == 100_000 * first.num_replicas_in_sync
