"""`Communicator.empty` on GPUs: arrays that other ranks read and write where they are."""

import gc
import time

import numpy as np
import pytest

from helpers.gpu.ranks import CARRIERS, communicator_on_gpus, num_counted
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.collectives.backends.gpu.carriers import peer_memory
from mpistrat.collectives.backends.gpu.memory import slabs
from mpistrat.errors import BackendUnavailableError, MismatchError, UsageError
from mpistrat.testing.backends.cases import setting
from mpistrat.testing.backends.samples import assert_same, expected_reduction, sample
from mpistrat.testing.sets import takes_long, with_all

COUNT = 3006  # a multiple of the ranks

CALLS = {
    "allreduce": lambda comm, x: comm.allreduce(x),
    "allreduce in place": lambda comm, x: comm.allreduce(x, out=x),
    "reduce": lambda comm, x: comm.reduce(x, root=1),
    "reduce_scatter": lambda comm, x: comm.reduce_scatter(x),
    "allgather": lambda comm, x: comm.allgather(x),
    "gather": lambda comm, x: comm.gather(x, 1),
    "scatter": lambda comm, x: comm.scatter(x if comm.rank == 1 else None, 1),
    "alltoall": lambda comm, x: comm.alltoall(x),
    "bcast in place": lambda comm, x: comm.bcast(x, 1, out=x),
    "parts": lambda comm, x: comm.allreduce_many([x[:9], x[9:20]], out=[x[:9], x[9:20]])[1],
}


def device_name(cupy):
    return f"GPU:{cupy.cuda.Device().id}"


def registered(comm, cupy, array):
    """Return a copy of an array of the host in registered memory."""
    found = comm.empty(array.shape, array.dtype, device=device_name(cupy))
    found.set(array)
    return found


def host(array):
    return None if array is None else array.get()


def count_copies(patch):
    """Return a list to which the bytes of each copy by `peer_memory` are added."""
    copies = []
    copy = peer_memory._copy_bytes

    def counted(source, target, nbytes):
        copies.append((target, nbytes))
        copy(source, target, nbytes)

    patch.setattr(peer_memory, "_copy_bytes", counted)
    return copies


def to_slab(comm, copies):
    """Return how many bytes were copied to this rank's slab."""
    [carrier] = comm.gate.device_backend._carriers.values()
    begin, length = carrier._slabs.mine, carrier._slabs.nbytes
    return sum(nbytes for target, nbytes in copies if begin <= target < begin + length)


@pytest.mark.mpi(ranks=[2, 3] if with_all() else 3, timeout_s=60)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_results_are_those_of_other_memory(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy):
        for dtype in ("float32", "int8"):
            mine = sample(dtype, (COUNT,), comm.rank)
            for name, call in CALLS.items():
                there = registered(comm, cupy, mine)
                assert there.device == cupy.cuda.Device()
                wanted = call(comm, cupy.asarray(mine))
                found = call(comm, there)
                assert (found is None) == (wanted is None), name
                if found is not None:
                    assert_same(found.get(), wanted.get(), name)
                if "in place" in name:
                    assert found is there
                elif name != "parts":
                    assert_same(there.get(), mine, f"the input after {name}")


@pytest.mark.mpi(ranks=[2, 3, 4] if with_all() else 3, timeout_s=60)
def test_nothing_is_copied_to_memory_that_is_mapped_already():
    with pytest.MonkeyPatch.context() as patch:
        copies = count_copies(patch)
        with communicator_on_gpus("peer_memory") as (comm, cupy):
            for name, call in CALLS.items():
                mine = sample("float32", (COUNT // comm.size * comm.size,), comm.rank)
                is_sender = comm.rank == 1 or name.partition(" ")[0] not in ("scatter", "bcast")
                there = registered(comm, cupy, mine)
                copied = []
                for memory in (cupy.asarray(mine), there):
                    copies.clear()
                    call(comm, memory)
                    copied.append(to_slab(comm, copies))
                has_slots = comm.size > 3 and name == "allreduce"  # for the slices of results
                assert (copied[0] > 0) == is_sender, name
                assert (copied[1] > 0) == has_slots, name


@takes_long()
@pytest.mark.mpi(ranks=4, timeout_s=60)
def test_more_ranks_than_read_all_of_it():
    with pytest.MonkeyPatch.context() as patch:
        copies = count_copies(patch)
        with communicator_on_gpus("peer_memory") as (comm, cupy):
            for dtype in ("float32", "int8"):
                for count in (1, 15, 1001):
                    everyone = [sample(dtype, (count,), r) for r in range(comm.size)]
                    want = expected_reduction("sum", everyone)
                    mine = registered(comm, cupy, everyone[comm.rank])
                    other = comm.empty(count, dtype, device="GPU:0")
                    copies.clear()
                    for out in (other, mine):
                        assert_same(comm.allreduce(mine, out=out).get(), want, f"{count} {dtype}")
                    assert copies == []
                    again = registered(comm, cupy, everyone[comm.rank])
                    assert_same(comm.allreduce(again).get(), want, f"{count} {dtype}")


@takes_long()
@pytest.mark.mpi(ranks=[2, 3] if with_all() else 3, timeout_s=60)
@pytest.mark.parametrize("carrier", ["peer_memory", "staged"])
def test_one_rank_brings_other_memory(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy):
        for name, call in CALLS.items():
            for other in range(comm.size):
                mine = sample("float32", (COUNT,), comm.rank)
                there = registered(comm, cupy, mine)
                wanted = call(comm, cupy.asarray(mine))
                found = call(comm, cupy.asarray(mine) if comm.rank == other else there)
                if found is not None:
                    assert_same(found.get(), wanted.get(), f"{name}, rank {other}")
                # Results alone, in or out of registered memory.
                into = cupy.empty_like(there) if comm.rank == other else cupy.zeros_like(there)
                into = into if comm.rank == other else there
                total = comm.allreduce(cupy.asarray(mine), out=into)
                assert_same(total.get(), host(comm.allreduce(cupy.asarray(mine))), "out=")


@pytest.mark.mpi(ranks=[2, 3] if with_all() else 3, timeout_s=60)
def test_parts_of_it():
    with communicator_on_gpus("peer_memory") as (comm, cupy):
        everyone = [sample("float32", (40, 30), r) for r in range(comm.size)]
        mine = registered(comm, cupy, everyone[comm.rank])
        for part in (np.s_[5:], np.s_[comm.rank : comm.rank + 20], np.s_[::2], np.s_[:, 1:]):
            parts = [one[part] for one in everyone]
            if isinstance(part, slice) and part.stop:  # each rank another part
                parts = [one[r : r + 20] for r, one in enumerate(everyone)]
            want = expected_reduction("sum", parts)
            assert_same(comm.allreduce(mine[part]).get(), want, part)
            assert_same(comm.allgather(mine[part]).get(), np.concatenate(parts), part)
        total = comm.allreduce(mine[3:9], out=mine[10:16])
        assert_same(total.get(), expected_reduction("sum", [one[3:9] for one in everyone]), "out")


@takes_long()
@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("name", CALLS)
def test_memory_is_free_again_when_a_call_returns(name):
    """The last rank reads late; the others have changed what it reads, had they not waited."""
    late = []

    def slowly(function):
        def wait(*arguments):
            if late:
                time.sleep(0.3)
            return function(*arguments)

        return wait

    with (
        communicator_on_gpus("peer_memory") as (comm, cupy),
        pytest.MonkeyPatch.context() as patch,
    ):
        mine = sample("float32", (COUNT,), comm.rank)
        wanted = CALLS[name](comm, cupy.asarray(mine))
        for reader in ("slice_reduce", "_read"):
            patch.setattr(peer_memory, reader, slowly(getattr(peer_memory, reader)))
        there = registered(comm, cupy, mine)
        if comm.rank == comm.size - 1:
            late.append(True)
        found = CALLS[name](comm, there)
        kept = None if found is None else found.copy()
        there.fill(np.nan)
        cupy.cuda.get_current_stream().synchronize()
        if kept is not None:
            assert_same(kept.get(), wanted.get(), name)


# ------------------------------------------------------------------------------------ lifetime


def free_bytes(comm, cupy):
    cupy.get_default_memory_pool().free_all_blocks()
    comm.barrier()
    return cupy.cuda.runtime.memGetInfo()[0]


@takes_long()
@pytest.mark.measures_memory
@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_it_is_given_back_once_all_ranks_have_dropped_it():
    with communicator_on_gpus("peer_memory") as (comm, cupy):
        kept = comm.empty(1, device="GPU:0")
        mib = num_counted(comm, cupy) << 20
        before = free_bytes(comm, cupy)
        arrays = [comm.empty(8 << 20, np.uint8, device="GPU:0") for _ in range(3)]
        part = arrays[1][5:10]
        assert before - free_bytes(comm, cupy) >= 24 * mib
        if comm.rank == 0:
            del arrays[2]  # the other rank's is still used
        del arrays[0], arrays[0]  # of the second one a part is left
        comm.empty(1, device="GPU:0")
        used = before - free_bytes(comm, cupy)
        assert 16 * mib <= used < 24 * mib, used
        part.fill(7)
        assert (comm.allreduce(part).get() == 14).all()
        del arrays, part
        comm.empty(1, device="GPU:0")
        comm.empty(1, device="GPU:0")
        assert before - free_bytes(comm, cupy) <= 4 * mib
        assert kept.size == 1


@takes_long()
@pytest.mark.measures_memory
@pytest.mark.mpi(ranks=2, timeout_s=60)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_it_outlives_its_communicator(carrier):
    with (
        setting("GPU_MAPPED_BYTES", 8 << 20),
        communicator_on_gpus(carrier) as (outer, cupy),
    ):
        mib = (1 if carrier == "nccl" else num_counted(outer, cupy)) << 20
        before = free_bytes(outer, cupy)
        with communicator_on_gpus(carrier) as (comm, _):
            mine = registered(comm, cupy, np.full(3 << 20, comm.rank, np.float32))
            comm.allreduce(mine, out=mine)
        assert (mine.get() == 1).all()
        mine += 1
        assert (outer.allreduce(mine).get() == 4).all()
        del mine
        assert before - free_bytes(outer, cupy) < 48 * mib  # the slab of `outer`
        outer.barrier()


# ------------------------------------------------------------------------------------ refusals


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_one_rank_names_a_gpu_that_is_not_there():
    with communicator_on_gpus("peer_memory") as (comm, cupy):
        device = "GPU:99" if comm.rank == 1 else "GPU:0"
        with pytest.raises(BackendUnavailableError, match=r"rank 1: .*GPU:99.* can see \d+ GPU"):
            comm.empty(5, device=device)
        with pytest.raises(MismatchError, match="memory=GPU"):
            comm.empty(5, device="CPU:0" if comm.rank == 1 else "GPU:0")
        with pytest.raises(BackendUnavailableError, match="ranks share no array on GPUs"):
            comm.empty(5, shared=True, device="GPU:0")
        with pytest.raises(UsageError, match="is no device"):
            comm.empty(5, device="abacus:0")
        assert isinstance(comm.empty(5, device="CPU:0"), np.ndarray)
        full = f"/job:worker/replica:0/task:{comm.rank}/device:GPU:0"
        assert comm.empty((2, 0), np.int8, device=full).shape == (2, 0)
        assert (comm.allreduce(cupy.ones(3)).get() == comm.size).all()


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_one_rank_has_no_cupy():
    with communicator_on_gpus("staged") as (comm, cupy), pytest.MonkeyPatch.context() as patch:
        if comm.rank == 1:
            patch.setattr(gpu_devices, "_cupy", lambda: __import__("no_such_library"))
        with pytest.raises(BackendUnavailableError, match=r"rank 1: .*CuPy.*install"):
            comm.empty(5, device="GPU:0")
        patch.undo()
        assert (comm.allreduce(cupy.ones(3)).get() == comm.size).all()


class _NoMemory:
    """A GPU's runtime that has no memory to give."""

    def __init__(self, runtime):
        self._runtime = runtime

    def __getattr__(self, name):
        return getattr(self._runtime, name)

    def malloc(self, nbytes):
        raise self._runtime.CUDARuntimeError(2)


@pytest.mark.measures_memory
@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("carrier", ["peer_memory", "staged"])
def test_one_rank_has_no_memory_for_it(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy), pytest.MonkeyPatch.context() as patch:
        comm.allreduce(cupy.ones(3))
        mib = num_counted(comm, cupy) << 20
        before = cupy.cuda.runtime.memGetInfo()[0]
        pool = cupy.get_default_memory_pool()
        if comm.rank == 1:
            if carrier == "peer_memory":
                runtime = _NoMemory(cupy.cuda.runtime)
                patch.setattr(slabs, "_runtime", lambda: runtime)
            else:
                pool.free_all_blocks()
                pool.set_limit(size=1 << 20)
        try:
            with pytest.raises(
                BackendUnavailableError, match=r"rank 1: .*memory.*\d+ of (its )?\d+"
            ):
                comm.empty(4 << 20, np.uint8, device="GPU:0")
        finally:
            patch.undo()
            pool.set_limit(size=0)
        comm.barrier()
        gc.collect()  # the error's frames refer to memory of ranks that had enough
        pool.free_all_blocks()
        assert before - cupy.cuda.runtime.memGetInfo()[0] < 4 * mib  # nothing is left
        assert comm.empty(5, device="GPU:0").shape == (5,)
