"""Calls for which a GPU has not enough memory: an error on every rank, or smaller buckets."""

import contextlib
import os
import sys

import numpy as np
import pytest

from helpers.gpu.devices import needs_gpus
from helpers.gpu.ranks import CARRIERS, communicator_on_gpus
from mpistrat.collectives.backends.gpu.memory import filling
from mpistrat.errors import BackendUnavailableError
from mpistrat.testing.backends.cases import setting
from mpistrat.testing.backends.samples import assert_same, expected_reduction, sample
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

MB = 1 << 20
COUNT = 3 * MB // 4  # float32

CALLS = {
    "allreduce": lambda comm, x: comm.allreduce(x),
    "reduce": lambda comm, x: comm.reduce(x, root=1),
    "reduce_scatter": lambda comm, x: comm.reduce_scatter(x),
    "bcast": lambda comm, x: comm.bcast(x, 1),
    "allgather": lambda comm, x: comm.allgather(x),
    "gather": lambda comm, x: comm.gather(x, 1),
    "scatter": lambda comm, x: comm.scatter(x if comm.rank == 0 else None, 0),
    "alltoall": lambda comm, x: comm.alltoall(x),
    "allreduce_many": lambda comm, x: comm.allreduce_many([x, x[:5]])[0],
    "a list of half types": lambda comm, x: comm.allreduce_many([x.view(np.float16)])[0],
}


@contextlib.contextmanager
def little_memory(cupy, nbytes, is_here):
    """Let this rank, if `is_here`, allocate no more than so many bytes."""
    # A pool of its own: the usual one may have a free part of a block that is in use.
    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=nbytes)
    before = cupy.cuda.get_allocator()
    if is_here:
        cupy.cuda.set_allocator(pool.malloc)
    try:
        yield
    finally:
        cupy.cuda.set_allocator(before)


@takes_long()
@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_one_rank_has_no_memory_for_a_result(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy):
        mine = cupy.ones(COUNT, np.float32)
        for name, call in CALLS.items():
            for _ in range(2):  # the first call of all opens the carrier
                call(comm, mine)
            with little_memory(cupy, MB // 2, comm.rank == 1):
                with pytest.raises(BackendUnavailableError, match="out of memory") as caught:
                    call(comm, mine)
                said = str(caught.value)
                assert "rank 1: " in said, (name, said)
                assert "bytes are free" in said, (name, said)
                assert "rank 0: GPU" not in said, (name, said)
                with pytest.raises(BackendUnavailableError, match="out of memory"):
                    comm.iallreduce(mine).wait()
                del caught
                assert float(comm.allreduce(mine, out=mine)[0]) == comm.size  # needs none
            mine.fill(1)
        assert (comm.allreduce(np.ones(3)) == comm.size).all()


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_no_rank_has_memory_for_a_result():
    with communicator_on_gpus("peer_memory") as (comm, cupy):
        mine = cupy.ones(COUNT, np.float32)
        with little_memory(cupy, MB // 2, is_here=True):
            for call in CALLS.values():
                with pytest.raises(BackendUnavailableError, match="out of memory"):
                    call(comm, mine)
        assert float(comm.allreduce(mine)[0]) == comm.size


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_buckets_that_fit_into_mapped_memory_need_no_other():
    with communicator_on_gpus("peer_memory") as (comm, cupy):
        mine = [cupy.full(COUNT, comm.rank + i, np.float32) for i in range(2)]
        comm.allreduce_many(mine, out=mine)
        with little_memory(cupy, MB // 2, is_here=True):
            comm.allreduce_many(mine, out=mine)
        assert [float(one[-1]) for one in mine] == [2.0, 6.0]


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_buckets_shrink_on_all_ranks_where_one_has_little_memory(carrier):
    with (
        setting("GPU_BUFFER_BYTES", MB // 2),
        setting("GPU_MAPPED_BYTES", MB // 2),  # no bucket fits into mapped memory
        communicator_on_gpus(carrier) as (comm, cupy),
        pytest.MonkeyPatch.context() as patch,
    ):
        everyone = [
            [sample("float32", (MB // 4,), 7 * r + i) for i in range(6)] for r in range(comm.size)
        ]
        wanted = [expected_reduction("sum", one) for one in zip(*everyone, strict=True)]
        mine = [cupy.asarray(one) for one in everyone[comm.rank]]
        outs = [cupy.empty_like(one) for one in mine]
        comm.allreduce_many(mine, out=outs)
        lengths = []
        reduce = type(comm.gate.device_backend).allreduce

        def counted(self, send, recv, op):
            lengths.append(send.nbytes)
            return reduce(self, send, recv, op)

        patch.setattr(type(comm.gate.device_backend), "allreduce", counted)
        comm.allreduce_many(mine, out=outs)
        assert lengths == [6 * MB]
        lengths.clear()
        with little_memory(cupy, 2 * MB + MB // 2, comm.rank == 1):
            comm.allreduce_many(mine, out=outs)
            assert lengths
            assert max(lengths) <= 2 * MB
            for found, want in zip(outs, wanted, strict=True):
                assert_same(found.get(), want, "smaller buckets")
        apart = [cupy.empty((one.size, 2), one.dtype)[:, 1] for one in mine]
        for is_here in (comm.rank == 1, True):
            with (
                little_memory(cupy, MB // 2, is_here),
                pytest.raises(BackendUnavailableError, match="out of memory") as caught,
            ):
                comm.allreduce_many(mine, out=apart)
            said = str(caught.value)
            assert "rank 1: GPU:" in said
            assert "MPISTRAT_FUSION_BYTES) down to 1048576, the longest array" in said, said


@takes_long()
@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_packed_and_converted_by_one_launch(carrier, dtype):
    with communicator_on_gpus(carrier) as (comm, cupy), pytest.MonkeyPatch.context() as patch:
        everyone = [[sample(dtype, (n,), r) for n in (5, 0, 130)] for r in range(comm.size)]
        mine = [cupy.asarray(one) for one in everyone[comm.rank]]
        launches = []
        cast = filling.cast

        def counted(sources, results):
            launches.append((len(sources), results[0].dtype.name))
            cast(sources, results)

        patch.setattr(filling, "cast", counted)
        for op in ("sum", "mean", "max"):
            wanted = [expected_reduction(op, one) for one in zip(*everyone, strict=True)]
            for outs in (None, [cupy.zeros_like(one) for one in mine]):
                comm.allreduce_many(mine, op, out=outs)  # the first call opens the carrier
                launches.clear()
                found = comm.allreduce_many(mine, op, out=outs)
                for one, want in zip(found, wanted, strict=True):
                    assert_same(one.get(), want, f"{op} of {dtype}")
                is_wide = carrier == "nccl" and op != "max"
                back = (1 if outs is None else 3, dtype)
                assert launches == ([(3, "float32"), back] if is_wide else [])
            assert found[0] is outs[0]


IN_TRANSFER = """
import time, cupy, numpy as np
from mpi4py import MPI
from mpistrat.collectives import Communicator
from mpistrat.collectives.backends.gpu.carriers import peer_memory
comm = Communicator(MPI.COMM_WORLD)
mine = cupy.ones(3000, np.float32)
comm.allreduce(mine)
def lacking(*arguments):
    raise cupy.cuda.memory.OutOfMemoryError(1000, 0)
if comm.rank == 1:
    peer_memory.slice_reduce = lacking
start = time.monotonic()
try:
    for _ in range(2):
        comm.allreduce(mine)
except Exception as error:
    waited = time.monotonic() - start
    print(type(error).__name__, waited, str(error).replace(chr(10), " "), sep="|", flush=True)
"""


@takes_long()
@pytest.mark.deadline(60)
def test_one_rank_has_no_memory_in_the_middle_of_a_transfer():
    needs_gpus(1)
    env = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "MPISTRAT_GPU_CARRIER": "peer_memory",
        "MPISTRAT_TIMEOUT": "10",
        "MPISTRAT_GRACE": "1",
    }
    result = run_job(["-c", IN_TRANSFER], 3, timeout_s=50, env=env)
    assert not result.timed_out, result
    for rank, one in enumerate(result.ranks):
        [line] = [line for line in one.stdout.splitlines() if "|" in line]
        error, waited, message = line.split("|", 2)
        assert error == ("CommunicationError" if rank == 1 else "PeerLostError"), line
        assert "GPU:0 is out of memory" in message
        assert "allocating 1,000 bytes" in message
        assert float(waited) < 10


OWN_POOL = """
import cupy
from mpi4py import MPI
from mpistrat.collectives import Communicator
pool = cupy.cuda.MemoryPool()
cupy.cuda.set_allocator(pool.malloc)
comm = Communicator(MPI.COMM_WORLD)
free, total = cupy.cuda.runtime.memGetInfo()
cupy.empty(free * 3 // 4, "u1")  # the pool keeps it
mine = comm.empty(free // 2, "u1", device="GPU:0")
print("bytes:", mine.size == free // 2, flush=True)
"""


@pytest.mark.deadline(60)
def test_registered_memory_takes_what_a_pool_of_the_users_own_keeps():
    needs_gpus(1)
    env = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "MPISTRAT_GPU_CARRIER": "peer_memory",
        "PRETEND_MIB": "256",
    }
    result = run_job(["-c", OWN_POOL], 2, timeout_s=50, env=env)
    assert not result.timed_out, result
    for one in result.ranks:
        assert "bytes: True" in one.stdout, one.stderr
