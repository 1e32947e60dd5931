"""Calls are ordered with the caller's current stream, and with nothing else on the GPU."""

import gc
import os
import sys
import threading
import warnings

import numpy as np
import pytest

from helpers.gpu.devices import needs_gpus
from helpers.gpu.ranks import CARRIERS, WaitingKernel, communicator_on_gpus, fill_late
from mpistrat.collectives.arrays import gpu_streams
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

COUNT = 3006  # a multiple of the ranks

CALLS = {
    "allreduce": lambda comm, x: comm.allreduce(x),
    "reduce": lambda comm, x: comm.reduce(x, root=1),
    "reduce_scatter": lambda comm, x: comm.reduce_scatter(x),
    "allreduce_many": lambda comm, x: comm.allreduce_many([x, x[:7]])[0],
    "bcast": lambda comm, x: comm.bcast(x, 1),
    "allgather": lambda comm, x: comm.allgather(x),
    "gather": lambda comm, x: comm.gather(x, 1),
    "scatter": lambda comm, x: comm.scatter(x if comm.rank == 1 else None, 1),
    "alltoall": lambda comm, x: comm.alltoall(x),
}
"""Each result has the elements `expected`, on rank 1 alone where only that gets one."""


def expected(name, size):
    """Return the least and the greatest element where rank r brings nothing but r + 1."""
    if "reduce" in name:
        return (size * (size + 1) / 2,) * 2
    return (2, 2) if name in ("bcast", "scatter") else (1, size)


def streams(cupy):
    return {
        "default": cupy.cuda.Stream.null,
        "per thread": cupy.cuda.Stream.ptds,
        "not blocking": cupy.cuda.Stream(non_blocking=True),
    }


@takes_long()
@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_calls_come_after_and_before_what_is_on_the_current_stream(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy):
        for stream in streams(cupy).values():
            for name, call in CALLS.items():
                with stream:
                    mine = cupy.zeros(COUNT, np.float32)
                    fill_late(mine, comm.rank + 1)
                    result = call(comm, mine)
                    mine.fill(np.nan)  # the call has read it
                    copied = None if result is None else result + 0
                    stream.synchronize()
                if copied is not None:
                    found = float(copied.min().get()), float(copied.max().get())
                    assert found == expected(name, comm.size), (name, stream)
                else:
                    assert name in ("reduce", "gather")
                    assert comm.rank != 1


@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_calls_do_not_wait_for_other_streams(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy):
        for is_first in (True, False):
            mine = cupy.full(COUNT, comm.rank + 1, np.float32)
            other = None if is_first else WaitingKernel()  # the first call may allocate, and wait
            for name, call in CALLS.items():
                if call(comm, mine) is not None and other is not None:
                    cupy.cuda.get_current_stream().synchronize()
                    assert not other.is_over, name
            if other is not None:
                assert other.end(), "a call has waited for another stream"


@pytest.mark.mpi(ranks=2, timeout_s=40)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_queued_calls_keep_the_stream_on_which_they_were_made(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy):
        made = []
        for index in range(3):
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                mine = cupy.zeros(COUNT, np.float32)
                fill_late(mine, index + comm.rank)
                made.append((stream, comm.iallreduce(mine, out=mine), mine))
        for index, (stream, work, mine) in reversed(list(enumerate(made))):
            assert work.wait() is mine
            with stream:
                assert (mine.get() == 2 * index + 1).all()


@pytest.mark.mpi(ranks=2, timeout_s=40)
def test_calls_on_a_threads_own_stream_that_another_thread_carries_on():
    with communicator_on_gpus("peer_memory") as (comm, cupy):
        comm.allreduce(cupy.zeros(COUNT, np.float32))
        works, found = [], []

        def make():
            with cupy.cuda.Stream(non_blocking=True):
                first = cupy.zeros(COUNT, np.float32)
                fill_late(first, 0)
                works.append(comm.iallreduce(first))
            with cupy.cuda.Stream.ptds:
                mine = cupy.zeros(COUNT, np.float32)
                threading.Timer(0.3, WaitingKernel(cupy.cuda.Stream.ptds).end).start()
                fill_late(mine, 3 + comm.rank)
                works.append(comm.iallreduce(mine))
                is_made.set()
                is_over.wait(30)
                total = works[1].wait() + 0
                found.append(total.get(cupy.cuda.Stream.ptds))

        is_made, is_over = threading.Event(), threading.Event()
        thread = threading.Thread(target=make)
        thread.start()
        assert is_made.wait(30)
        comm.allreduce(np.ones(1))  # carries on what is before it
        is_over.set()
        thread.join()
        assert (found[0] == 7).all()


@takes_long()
@pytest.mark.deadline(60)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_all_work_of_the_gpu_is_late(carrier):
    """What a call has queued last may begin after the call has ended."""
    needs_gpus(2 if carrier == "nccl" else 1)
    name = test_calls_come_after_and_before_what_is_on_the_current_stream.__name__
    program = f"import runpy; runpy.run_path({__file__!r})[{name!r}]({carrier!r})"
    path = os.pathsep.join(sys.path)
    run_job(["-c", program], 2, env={"PRETEND_LATE_MS": "2", "PYTHONPATH": path}).check()


def test_a_stream_that_cupy_has_not_made():
    needs_gpus(1)
    import cupy

    theirs = cupy.cuda.Stream(non_blocking=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # CuPy 14 has deprecated its first way
        mine = gpu_streams.foreign_stream(theirs.ptr, 0)
    assert (mine.ptr, mine.device_id) == (theirs.ptr, 0)
    assert gpu_streams.foreign_stream(theirs.ptr, 0) is mine
    with mine:
        assert cupy.cuda.get_current_stream().ptr == theirs.ptr
    del mine
    gc.collect()
    with theirs:  # not destroyed with CuPy's object for it
        assert (cupy.ones(3) + 1).tolist() == [2, 2, 2]


def test_a_stream_that_cupy_13_has_not_made():
    needs_gpus(1)
    import cupy

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        patch.delattr(cupy.cuda.Stream, "from_external", raising=False)
        mine = gpu_streams.foreign_stream.__wrapped__(cupy.cuda.runtime.streamLegacy)
    assert isinstance(mine, cupy.cuda.ExternalStream)
    assert (mine.ptr, mine.device_id) == (cupy.cuda.runtime.streamLegacy, -1)


def test_the_default_stream_of_all_threads_is_of_every_gpu():
    """CuPy refuses to make a stream of one GPU the current one of another."""
    needs_gpus(2)
    import cupy

    for index in (0, 1):
        with cupy.cuda.Device(index), gpu_streams.foreign_stream(cupy.cuda.runtime.streamLegacy):
            assert cupy.ones(3).sum() == 3
