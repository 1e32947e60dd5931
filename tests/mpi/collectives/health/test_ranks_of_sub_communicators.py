"""Errors of a communicator of some ranks name these by their ranks in the job, too."""

import os
import time
from contextlib import contextmanager

import numpy as np
import pytest

from mpistrat.collectives import Communicator, shutdown
from mpistrat.errors import CommunicationTimeoutError, MismatchError, PeerLostError
from mpistrat.testing.launcher import run_job


@contextmanager
def odd_ranks():
    """Give a communicator of the ranks but 0, which gets None, and close it."""
    from mpi4py import MPI

    part = MPI.COMM_WORLD.Split(min(MPI.COMM_WORLD.rank, 1), MPI.COMM_WORLD.rank)
    comm = Communicator(part) if MPI.COMM_WORLD.rank else None
    try:
        yield comm
    finally:
        if comm is not None:
            comm.close()
        part.Free()


@pytest.mark.mpi(ranks=3, timeout_s=15)
def test_a_mismatch():
    with odd_ranks() as comm:
        if comm is None:
            return
        with pytest.raises(MismatchError) as caught:
            comm.allreduce(np.ones(3 + comm.rank))
        text = str(caught.value)
        assert f"(seen on rank {comm.rank}/2 (world rank {comm.rank + 1})):" in text
        assert "rank 0 (world rank 1): allreduce(op=sum, dtype=float64, shape=(3,))" in text
        assert "rank 1 (world rank 2): allreduce(op=sum, dtype=float64, shape=(4,))" in text
        assert list(caught.value.calls) == [0, 1]


@pytest.mark.mpi(ranks=3, timeout_s=20)
def test_a_rank_that_does_not_come():
    with odd_ranks() as comm:
        if comm is None:
            return
        shutdown.forget(comm)  # it breaks, and the job goes on
        if comm.rank == 1:
            time.sleep(4)
        kinds = CommunicationTimeoutError if comm.rank == 0 else PeerLostError

        def call():
            comm.barrier(timeout=1)
            comm.barrier()

        with pytest.raises(kinds) as caught:
            call()
        text = str(caught.value)
        if comm.rank == 0:
            assert "barrier() on rank 0/2 (world rank 1, " in text
            assert "ranks that did not come: 1 (world rank 2);" in text
            assert "\nrank 1 (world rank 2) is at" in text
            assert caught.value.missing == (1,)
        else:
            assert "rank 0 (world rank 1) gave up with" in text
            assert (caught.value.rank, caught.value.world_rank) == (0, 1)


# Rank 2 fails; rank 1 hears of it by the communicator of both, and rank 0 of rank 1's failure.
FAILS = """
import time
from mpi4py import MPI
from mpistrat import Communicator
rank = MPI.COMM_WORLD.rank
everyone = Communicator()
part = Communicator(MPI.COMM_WORLD.Split(min(rank, 1), rank))
if rank == 2:
    part.fail(ValueError("of rank 2"))
    time.sleep(60)
try:
    part.barrier() if rank else everyone.barrier()
except Exception as error:
    print(type(error).__name__, error.rank, error.world_rank, flush=True)
    everyone.fail(error)
    time.sleep(3)
    raise
"""


def test_the_rank_that_failed_is_the_same_one_for_all_communicators():
    env = {"MPISTRAT_GRACE": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    result = run_job(["-c", FAILS], 3, 40.0, env=env)
    assert not result.timed_out, result.output
    assert result.ranks[1].stdout == "PeerLostError 1 2\n", result.output
    assert result.ranks[0].stdout == "PeerLostError 2 2\n", result.output
