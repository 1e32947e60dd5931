"""The fast path of ``communicator.allreduce`` where something fails, or has been closed."""

import gc
import os
import time

import numpy as np
import pytest

from helpers.collectives.fast_path import check, drop, open_communicator
from mpistrat.errors import (
    ClosedError,
    CommunicationError,
    CommunicationTimeoutError,
    PeerLostError,
)
from mpistrat.testing.sets import takes_long


@takes_long()
@pytest.mark.mpi(ranks=2)
def test_deadline_of_a_call_that_names_none():
    comm = open_communicator()
    os.environ["MPISTRAT_TIMEOUT"] = "0.5"
    try:
        if comm.rank == 0:
            with pytest.raises(CommunicationTimeoutError, match="ranks that did not come: 1"):
                comm.allreduce(np.ones(2))
        else:
            time.sleep(2)  # the other one asks for a second who else waits
            with pytest.raises(CommunicationError, match=r"rank 0 gave up|waited 0\.\d s"):
                comm.barrier()
    finally:
        del os.environ["MPISTRAT_TIMEOUT"]
    with pytest.raises(CommunicationError, match="broken"):
        comm.allreduce(np.ones(2))
    drop(comm)


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("call", ["allreduce", "bcast", "allgather"])
def test_deadline_of_a_call_that_names_one(call):
    comm = open_communicator()
    if comm.rank == 0:
        begin = time.monotonic()
        with pytest.raises(CommunicationTimeoutError, match=r"waited 0\.5 s|within 0\.5 s"):
            getattr(comm, call)(np.ones(2), timeout=0.5)
        assert time.monotonic() - begin < 30, "not MPISTRAT_TIMEOUT"
    else:
        time.sleep(2)  # the other one asks for a second who else waits
        with pytest.raises(CommunicationError, match=r"rank 0 gave up|waited 0\.\d s"):
            comm.barrier()
    drop(comm)


@pytest.mark.mpi(ranks=2)
def test_a_peer_that_fails_while_it_waits():
    comm = open_communicator()
    if comm.rank == 0:
        with pytest.raises(PeerLostError, match="rank 1 failed with ValueError: of its own"):
            comm.allreduce(np.ones(2))
    else:
        time.sleep(0.1)
        comm.end(ValueError("of its own"))
    drop(comm)


@pytest.mark.mpi(ranks=2)
def test_after_a_failure_of_all_ranks():
    with open_communicator() as comm:
        comm.allreduce(np.ones(2))
        comm.fail(ValueError("alike on all ranks"))
        for _ in range(3):
            check(comm, np.ones(2), is_fast=True)


@pytest.mark.mpi(ranks=2)
def test_after_the_close():
    comm = open_communicator()
    call = comm.allreduce
    call(np.ones(2))
    comm.close()
    with pytest.raises(ClosedError):
        call(np.ones(2))
    del comm
    gc.collect()
    with pytest.raises(ClosedError):
        call(np.ones(2))
