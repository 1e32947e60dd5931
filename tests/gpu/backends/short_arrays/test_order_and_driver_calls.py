"""Short all-reduces on GPUs: how many calls of the driver one makes, and the order of streams."""

import gc
import json
import os
import sys

import numpy as np
import pytest

from gpu.pretend import counting
from helpers.gpu.devices import needs_gpus
from helpers.gpu.ranks import communicator_on_gpus, fill_late
from mpistrat.collectives.backends.gpu.short_arrays import allreduce, host_slot
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

COUNTED = """
import json, os
import cupy, numpy as np
from mpi4py import MPI
from gpu.pretend.counting import calls_during
from mpistrat.collectives import Communicator
with cupy.cuda.Device(0), Communicator(MPI.COMM_WORLD) as comm:
    for nbytes in (8, 65_536):
        mine = cupy.full(nbytes // 4, comm.rank + 1, np.float32)
        out = cupy.empty_like(mine)
        for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
            with stream:
                for options in ({"out": out}, {}):
                    for _ in range(3):
                        total = comm.allreduce(mine, **options)
                    work = lambda: comm.allreduce(mine, **options)
                    calls = calls_during(os.environ["LD_PRELOAD"], work)
                    looks = calls.pop("hipEventQuery", 0)
                    print(json.dumps([looks, calls]), flush=True)
                    assert (total.get() == 3).all()
    out.fill(0)
    work = lambda: comm.allreduce(mine, out=out, timeout=20)  # the general way
    print(json.dumps(calls_during(os.environ["LD_PRELOAD"], work)), flush=True)
    assert (out.get() == 3).all()
"""


@pytest.mark.deadline(90)
def test_how_many_calls_of_the_driver_it_makes(tmp_path):
    """Why each is needed says short_arrays/allreduce.py; one more takes up to 2 µs of a call."""
    needs_gpus(1)
    if (why := counting.why_not()) is not None:
        pytest.skip(why)
    env = {
        "LD_PRELOAD": str(counting.build_counter(tmp_path)),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    result = run_job(["-c", COUNTED], 2, timeout_s=80, env=env).check()
    copies = {
        "hipGetDevice": 1,
        "hipStreamIsCapturing": 1,
        "hipMemcpyAsync": 2,
        "hipEventRecord": 2,
    }
    with_memory = {**copies, "hipGetDevice": 3}  # CuPy's allocator asks for it, too
    for rank in result.ranks:
        *found, general = [json.loads(line) for line in rank.stdout.splitlines()]
        assert [calls for _, calls in found] == [copies, with_memory] * 4
        assert all(looks >= 1 for looks, _ in found)
        assert general["hipMemcpyAsync"] == 2
        assert "hipModuleLaunchKernel" not in general


LATE_STREAMS = """
import threading
import cupy, numpy as np
from mpi4py import MPI
from mpistrat.collectives import Communicator
from mpistrat.collectives.backends.gpu.short_arrays import allreduce, host_slot
found, plainly = [], allreduce.copy_down

def copy_down(slot, there, nbytes, stream):
    is_of_all_threads = stream.ptr == cupy.cuda.runtime.streamLegacy  # which the general way uses
    found.append(is_of_all_threads or host_slot.is_over(slot.event, 1, slot.runtime))
    plainly(slot, there, nbytes, stream)

rank = MPI.COMM_WORLD.rank
with Communicator(MPI.COMM_WORLD) as comm:
    arrays = [cupy.full(20_000, k + rank, np.float32) for k in range(13)]
    comm.allreduce(arrays[0])
    comm.allreduce(arrays[0])
    cupy.cuda.Device().synchronize()
    results = []
    allreduce.copy_down = copy_down
    if {is_per_thread}:
        for array in arrays:  # one thread after the other, each with a default stream
            def call(): results.append(comm.allreduce(array))
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
    else:
        pair = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
        for k, array in enumerate(arrays):
            with pair[k // 4 % 2]:
                results.append(comm.allreduce(array))
    cupy.cuda.Device().synchronize()
    print(all((one.get() == 2 * k + 1).all() for k, one in enumerate(results)))
    print(*map(int, found), flush=True)
"""


@pytest.mark.deadline(90)
@pytest.mark.parametrize(
    "is_per_thread", [False, pytest.param(True, marks=takes_long())], ids=["", "one a thread"]
)
def test_late_copies_of_several_streams(is_per_thread):
    """A call waits for the last one's copy to the GPU if that is on another stream."""
    needs_gpus(1)
    env = {
        "PRETEND_LATE_MS": "20",
        "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM": str(int(is_per_thread)),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    program = LATE_STREAMS.format(is_per_thread=is_per_thread)
    result = run_job(["-c", program], 2, timeout_s=80, env=env).check()
    for rank in result.ranks:
        is_right, waited = rank.stdout.splitlines()
        assert is_right == "True"
        waited = [one == "1" for one in waited.split()]
        others = waited if is_per_thread else waited[::4]
        assert all(others), waited
        assert is_per_thread or not any(waited[k] for k in range(13) if k % 4), waited


def test_which_streams_its_memory_is_in_the_order_of():
    """Not a new stream, which may have the address of one that is gone; nor any thread's own."""
    needs_gpus(1)
    import cupy

    slot = host_slot.HostSlot(1024, None)
    stream = cupy.cuda.Stream(non_blocking=True)
    assert not slot.is_before(stream)
    slot.note(stream)
    assert slot.is_before(stream)
    assert not slot.is_before(cupy.cuda.Stream.null)
    del stream
    gc.collect()
    assert not slot.is_before(cupy.cuda.Stream(non_blocking=True))
    slot.note(cupy.cuda.Stream.null)
    assert slot.is_before(cupy.cuda.Stream.null)
    slot.note(cupy.cuda.Stream.ptds)
    assert not slot.is_before(cupy.cuda.Stream.ptds)
    assert not slot.is_before(cupy.cuda.Stream.null)


@pytest.mark.mpi(ranks=2, timeout_s=40)
def test_work_of_the_gpu_takes_its_time():
    """The call waits for it, copies once, and is counted and recorded once."""
    with communicator_on_gpus("auto", 0) as (comm, cupy), pytest.MonkeyPatch.context() as patch:
        stream, copies = cupy.cuda.Stream(non_blocking=True), []
        plainly = allreduce.copy_down
        with stream:
            mine, out = cupy.ones(3000, np.float32), cupy.empty(3000, np.float32)
            comm.allreduce(mine, out=out)
            stream.synchronize()
            patch.setattr(allreduce, "copy_down", lambda *a: copies.append(plainly(*a)))
            before = comm._engine.started, comm.records()[-1].sequence
            for turn in range(3):
                fill_late(mine, comm.rank + turn)
                assert comm.allreduce(mine, out=out) is out
                assert (out.get() == 2 * turn + 1).all()
        assert len(copies) == 3
        after = comm._engine.started, comm.records()[-1].sequence
        assert after == tuple(number + 3 for number in before)
        assert comm.records()[-1].carrier == "staged"
        assert (comm.allreduce(np.ones(3)) == comm.size).all()
