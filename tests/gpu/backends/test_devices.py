"""Collectives of ranks that have a GPU each, share some, or change them from call to call."""

import os

import numpy as np
import pytest

from helpers.gpu.devices import needs_gpus
from helpers.gpu.ranks import CARRIERS, communicator_on_gpus
from mpistrat.collectives.backends.gpu.carriers import peer_memory
from mpistrat.testing.backends.cases import setting
from mpistrat.testing.backends.samples import assert_same, expected_reduction, sample
from mpistrat.testing.sets import with_all


def assert_sums(comm, cupy):
    mine = cupy.arange(1000, dtype=np.float32) + comm.rank
    want = np.arange(1000, dtype=np.float32) * comm.size + sum(range(comm.size))
    for total in (comm.allreduce(mine), comm.allreduce_many([mine, mine])[1]):
        assert total.device == mine.device
        assert (total.get() == want).all()
    everyone = comm.allgather(mine[:1])
    assert everyone.device == mine.device
    assert everyone.get().tolist() == list(range(comm.size))


@pytest.mark.mpi(ranks=3, timeout_s=40)
@pytest.mark.parametrize("carrier", [*CARRIERS, "auto"])
def test_ranks_with_a_gpu_each(carrier):
    needs_gpus(3)
    from mpi4py import MPI

    with communicator_on_gpus(carrier, MPI.COMM_WORLD.rank) as (comm, cupy):
        assert_sums(comm, cupy)


@pytest.mark.mpi(ranks=4, timeout_s=40)
@pytest.mark.parametrize("carrier", ["staged", "peer_memory", "auto"])
def test_two_ranks_on_each_of_two_gpus(carrier):
    needs_gpus(2)
    from mpi4py import MPI

    with communicator_on_gpus(carrier, MPI.COMM_WORLD.rank // 2) as (comm, cupy):
        assert_sums(comm, cupy)


@pytest.mark.mpi(ranks=[2, 3] if with_all() else 3, timeout_s=60)
@pytest.mark.parametrize("carrier", [*CARRIERS, "auto"])
def test_gpus_change_from_call_to_call(carrier):
    needs_gpus(3)
    with communicator_on_gpus(carrier, 0) as (comm, cupy):
        for shift in (0, 1, 0, 2):
            with cupy.cuda.Device((comm.rank + shift) % 3):
                assert_sums(comm, cupy)
            if carrier == "auto":  # all on one GPU: by another carrier
                with cupy.cuda.Device(shift):
                    assert_sums(comm, cupy)


@pytest.mark.mpi(ranks=[2, 3] if with_all() else 3, timeout_s=60)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_arrays_on_a_gpu_that_is_not_the_current_one(carrier):
    needs_gpus(3)
    with communicator_on_gpus(carrier, 0) as (comm, cupy):
        with cupy.cuda.Device(comm.rank):
            mine = cupy.ones(100, np.float32)
        work = comm.iallreduce(mine)
        with cupy.cuda.Device(2 - comm.rank):  # is the current one when it ends
            total = work.wait()
        assert total.device == mine.device
        assert (total.get() == comm.size).all()
        assert cupy.cuda.Device().id == 0


@pytest.mark.mpi(ranks=2, timeout_s=40)
def test_processes_of_two_containers_have_the_same_number():
    """An address of the other one's memory means nothing here, or other memory."""
    with communicator_on_gpus("auto", 0) as (comm, cupy), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 7)
        mine = cupy.full(300_000, comm.rank + 1.0)  # too long for the host
        assert (comm.allreduce(mine).get() == 3).all()
        assert (comm.bcast(mine, 1).get() == 2).all()


@pytest.mark.mpi(ranks=4, timeout_s=60)
@pytest.mark.parametrize("gpus", [(0, 0, 0, 0), (0, 1, 0, 1), (1, 0, 0, 2)])
def test_one_rank_reduces_for_all_that_share_its_gpu(gpus):
    """Every element is reduced by one rank, also where arrays are registered."""
    needs_gpus(3)
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    with (
        setting("GPU_SHORT_BYTES", 0),
        communicator_on_gpus("peer_memory", gpus[rank]) as (comm, cupy),
        pytest.MonkeyPatch.context() as patch,
    ):
        reduced = []
        plainly = peer_memory.slice_reduce

        def slice_reduce(op, dtype, sends, recvs, begin, end):
            reduced.append((begin, end))
            plainly(op, dtype, sends, recvs, begin, end)

        patch.setattr(peer_memory, "slice_reduce", slice_reduce)
        everyone = [sample("float32", (200_001,), one) for one in range(4)]
        want = expected_reduction("sum", everyone)
        device = f"GPU:{gpus[rank]}"
        registered = comm.empty(want.shape, want.dtype, device=device)
        for mine in (cupy.asarray(everyone[rank]), registered):
            registered[...] = cupy.asarray(everyone[rank])
            reduced.clear()
            comm.allreduce(mine, out=mine)
            assert_same(mine.get(), want, str(gpus))
            assert len(reduced) == (gpus.index(gpus[rank]) == rank)
            parts = sorted(part for some in comm.allgather_object(reduced) for part in some)
            assert [begin for begin, _ in parts] == [0, *(end for _, end in parts[:-1])]
            assert (parts[-1][1], len(parts)) == (want.size, len(set(gpus)))
