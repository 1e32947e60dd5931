"""A rank that waits leaves its core to others."""

import time

import numpy as np
import pytest

import mpistrat

LATE_S, CALLS = 0.015, 20


@pytest.mark.mpi(ranks=[2, 3], timeout_s=30)
def test_a_wait_of_milliseconds_uses_little_of_the_core():
    with mpistrat.MirroredStrategy() as s:
        communicator = s.communicator
        used = waited = 0.0
        for _ in range(CALLS):
            communicator.barrier()
            if communicator.rank == 0:
                time.sleep(LATE_S)
            start, cpu = time.perf_counter(), time.thread_time()
            work = communicator.iallreduce_many([np.ones(1000), np.ones(10, np.int32)])
            totals = work.wait()
            waited += time.perf_counter() - start
            used += time.thread_time() - cpu
            assert [total[0] for total in totals] == [communicator.size] * 2
        if communicator.rank:
            assert waited > CALLS * LATE_S / 2
            assert used < waited / 2
