"""A rank that waits leaves its core to others."""

import threading
import time

import numpy as np
import pytest

import mpistrat
from mpistrat.collectives import Communicator, shutdown
from mpistrat.errors import CommunicationError, CommunicationTimeoutError
from mpistrat.testing.sets import takes_long

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


def sum_slowly(comm, times):
    for _ in range(times):
        comm.iallreduce(np.ones(4)).wait()
        end = time.perf_counter() + 7e-4
        while time.perf_counter() < end:
            pass  # a sleep would last longer than a wait of the other rank's backend


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=30)
def test_a_deadline_holds_while_earlier_calls_end():
    from mpi4py import MPI

    comm = Communicator(MPI.COMM_WORLD)
    if comm.rank == 0:
        works = [comm.iallreduce(np.ones(4)) for _ in range(3000)]
        start = time.perf_counter()
        with pytest.raises(CommunicationTimeoutError):
            works[-1].wait(timeout=0.2)
        assert 0.2 < time.perf_counter() - start < 1.8  # with what the ranks ask each other: 1.2
    else:
        with pytest.raises(CommunicationError):
            sum_slowly(comm, 3000)
    MPI.COMM_WORLD.Barrier()
    comm.health.closed = True  # the ranks cannot close it together; the job is to end well
    shutdown.forget(comm)


@pytest.mark.mpi(ranks=2, timeout_s=30)
def test_threads_that_wait_and_threads_that_begin_calls_get_on():
    """Two threads of rank 0 wait for calls that rank 1 makes late, a third begins others."""
    with mpistrat.MirroredStrategy() as s:
        comm = s.communicator
        works, rounds = [], 60

        def await_all():
            for index in range(rounds):
                while len(works) <= index:
                    time.sleep(1e-4)
                assert works[index].wait()[0][0] == 2

        threads = [threading.Thread(target=await_all) for _ in range(2)]
        for thread in threads if comm.rank == 0 else []:
            thread.start()
        slowest = 0.0
        for _ in range(rounds):
            if comm.rank == 1:
                time.sleep(0.005)
            start = time.perf_counter()
            works.append(comm.iallreduce_many([np.ones(1000), np.ones(10, np.int32)]))
            slowest = max(slowest, time.perf_counter() - start)
            if comm.rank == 1:
                works[-1].wait()
        for thread in threads if comm.rank == 0 else []:
            thread.join()
        assert slowest < 1.0
