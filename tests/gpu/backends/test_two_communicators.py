"""Calls of several communicators that are under way at the same time, in another order a rank."""

import numpy as np
import pytest

from helpers.gpu.ranks import CARRIERS, communicator_on_gpus


@pytest.mark.mpi(ranks=2, timeout_s=60)
@pytest.mark.parametrize("carrier", [*CARRIERS, "one_shot"])
def test_communicators_do_not_wait_for_each_other(carrier):
    with communicator_on_gpus(carrier) as (one, cupy), communicator_on_gpus(carrier) as (two, _):
        mine = cupy.ones(1000, np.float32)
        for comm in (one, two):
            comm.allreduce(mine, timeout=30)  # opens the carrier
        order = (one, two) if one.rank == 0 else (two, one)
        for _ in range(20):
            works = [comm.iallreduce(mine) for comm in order]
            for work in works:
                assert (work.wait(20).get() == 2).all()
