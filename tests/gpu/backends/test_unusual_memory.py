"""Arrays in memory that is not CuPy's usual one: managed, of other pools, freed too early."""

import os
import sys

import numpy as np
import pytest

from helpers.gpu.devices import needs_gpus
from helpers.gpu.ranks import CARRIERS, communicator_on_gpus
from mpistrat.collectives import Communicator
from mpistrat.testing.backends.samples import assert_same, expected_reduction, sample
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

COUNT = 3003


def check_calls(comm, mine):
    """All that reads `mine`, an array of float32 of length COUNT, gets what is in it."""
    everyone = [sample("float32", (COUNT,), rank) for rank in range(comm.size)]
    mine.set(everyone[comm.rank])
    total = expected_reduction("sum", everyone)
    assert_same(comm.allreduce(mine).get(), total, "allreduce")
    assert_same(comm.allreduce_many([mine, mine[::2]])[1].get(), total[::2], "a list")
    assert_same(comm.allgather(mine).get(), np.concatenate(everyone), "allgather")
    assert_same(comm.bcast(mine, 1).get(), everyone[1], "bcast")
    assert_same(comm.allreduce(mine, out=mine).get(), total, "in place")
    assert_same(comm.bcast(mine, 1, out=mine).get(), total, "bcast in place")


@pytest.mark.mpi(ranks=2, timeout_s=40)
@pytest.mark.parametrize("carrier", ["staged", "peer_memory"])  # NCCL's own limits are its own
def test_managed_memory(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy):
        pointer = cupy.cuda.malloc_managed(4 * COUNT)
        check_calls(comm, cupy.ndarray((COUNT,), np.float32, pointer))


@pytest.mark.mpi(ranks=2, timeout_s=40)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_memory_of_the_drivers_pool(carrier):
    """It has no handle that another process could open."""
    with communicator_on_gpus(carrier) as (comm, cupy):
        try:
            pointer = cupy.cuda.malloc_async(4 * COUNT)
        except RuntimeError as error:
            pytest.skip(f"needs cudaMallocAsync: {error}")
        check_calls(comm, cupy.ndarray((COUNT,), np.float32, pointer))


@pytest.mark.mpi(ranks=2, timeout_s=40)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_memory_that_begins_anywhere(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy):
        memory = cupy.empty(4 * COUNT + 64, np.uint8)
        for start in (4, 12, 20):  # aligned as the elements are
            check_calls(comm, memory[start : start + 4 * COUNT].view(np.float32))


@takes_long()
@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_nan_wins_minima_and_maxima_where_mpi_carries_the_host():
    """MPI leaves open what the minimum of NaN and a number is."""
    cupy = needs_gpus(1)
    from mpi4py import MPI

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPISTRAT_GPU_CARRIER", "staged")
        with Communicator(MPI.COMM_WORLD, backend="mpi") as comm:
            for dtype in ("float32", "float64", "float16", "bfloat16"):
                everyone = [sample(dtype, (65,), rank) for rank in range(comm.size)]

                def same(found, want, what):  # NaN of bfloat16 equals none, to NumPy
                    assert found.dtype == want.dtype, what
                    assert_same(found.get().astype(float), want.astype(float), what)

                for rank, one in enumerate(everyone):
                    one[7 * rank : 7 * rank + 3] = np.nan
                mine = cupy.asarray(everyone[comm.rank])
                for op in ("min", "max"):
                    want = expected_reduction(op, everyone)
                    assert np.isnan(want.astype(np.float64)).sum() == 3 * comm.size
                    same(comm.allreduce(mine, op), want, f"{op} of {dtype}")
                    [found] = comm.allreduce_many([mine], op)
                    same(found, want, f"{op} of a list of {dtype}")
                    part = comm.reduce_scatter(mine, op)
                    piece = np.array_split(want, comm.size)[comm.rank]
                    same(part, piece, f"a part of the {op} of {dtype}")
                    at_root = comm.reduce(mine, op, root=1)
                    if comm.rank == 1:
                        same(at_root, want, f"{op} of {dtype} at the root")


FREED = """
import os, time
import cupy, numpy as np
from mpi4py import MPI
from mpistrat.collectives import Communicator
comm = Communicator(MPI.COMM_WORLD)
runtime = cupy.cuda.runtime
with cupy.cuda.Device(comm.rank if {is_apart} else 0) as device:
    address = runtime.malloc(4 << 20)
    memory = cupy.cuda.UnownedMemory(address, 4 << 20, None, device.id)
    mine = cupy.ndarray((3000,), np.float32, cupy.cuda.MemoryPointer(memory, 0))
    mine.fill(1)
    for _ in range(2):
        {call}
    device.synchronize()
    if comm.rank == 1:
        runtime.free(address)
    start = time.monotonic()
    for _ in range(2):  # what is queued last may fail in the next call
        try:
            {call}
        except Exception as error:
            waited = time.monotonic() - start
            text = str(error).replace(chr(10), " ")
            print(type(error).__name__, waited, text, sep="|", flush=True)
            break
"""

READS = {
    "allreduce": "comm.allreduce(mine)",
    "allgather": "comm.allgather(mine)",
    "bcast": "comm.bcast(mine, 1)",
    "a list": "comm.allreduce_many([mine, mine[:7]])",
}


@takes_long()
@pytest.mark.deadline(80)
@pytest.mark.parametrize(
    ("carrier", "name"),
    [
        pytest.param(carrier, name, marks=[] if name == "allreduce" else takes_long())
        for carrier in CARRIERS
        for name in READS
    ],
)
def test_memory_that_was_freed(carrier, name):
    """All ranks get an error within the deadline, and none is killed without a word."""
    needs_gpus(2 if carrier == "nccl" else 1)
    program = FREED.format(is_apart=carrier == "nccl", call=READS[name])
    env = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "MPISTRAT_GPU_CARRIER": carrier,
        "MPISTRAT_TIMEOUT": "8",
        "MPISTRAT_GRACE": "1",
    }
    result = run_job(["-c", program], 2, timeout_s=60, env=env)
    assert not result.timed_out, result
    for rank, one in enumerate(result.ranks):
        [line] = [line for line in one.stdout.splitlines() if "Error|" in line]
        error, waited, message = line.split("|", 2)
        assert error == ("CommunicationError" if rank == 1 else "PeerLostError"), line
        assert any(one in message for one in ("hipError", "cudaError", "CUDA_ERROR", "NCCL_ERROR"))
        assert float(waited) < 8, line
