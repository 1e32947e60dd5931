"""Short all-reduces of arrays on GPUs by the host, beside long ones by another carrier."""

import contextlib
import gc
import os
import sys
import threading
from unittest import mock

import numpy as np
import pytest

from helpers.gpu.devices import needs_gpus
from helpers.gpu.ranks import WaitingKernel, communicator_on_gpus, fill_late
from mpistrat import config
from mpistrat.collectives import shutdown
from mpistrat.collectives.backends.gpu.memory import pinned_regions
from mpistrat.collectives.backends.gpu.short_arrays import host_slot
from mpistrat.errors import (
    ArgumentTypeError,
    BackendUnavailableError,
    CommunicationError,
    CommunicationTimeoutError,
    MismatchError,
    PeerLostError,
    UsageError,
)
from mpistrat.testing.backends.cases import setting
from mpistrat.testing.backends.samples import (
    DTYPES,
    DTYPES_BY_SIZE,
    SHAPES,
    assert_same,
    expected_reduction,
    ops_for,
    sample,
)
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long, with_all

MOST_BYTES = 4096


@contextlib.contextmanager
def opened(carrier="auto"):
    """Yield a communicator that has a carrier, and CuPy."""
    with communicator_on_gpus(carrier, 0) as (comm, cupy):
        comm.allreduce(cupy.ones(1))
        yield comm, cupy


def carrier_of_last(comm):
    return comm.records()[-1].carrier


def call_twice(comm, mine, **options):
    """Meet an error of another rank that came after this one's part of the first call."""
    for _ in range(2):
        comm.allreduce(mine, **options)


@takes_long()
@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("carrier", ["auto", "staged"])
def test_all_ops_and_dtypes(carrier):
    with opened(carrier) as (comm, cupy):
        for dtype in DTYPES if with_all() else DTYPES_BY_SIZE:
            for op in ops_for(dtype):
                for shape in SHAPES if with_all() else [(), (2, 0, 3), (11, 7, 5)]:
                    everyone = [sample(dtype, shape, rank) for rank in range(comm.size)]
                    want = expected_reduction(op, everyone)
                    mine = cupy.asarray(everyone[comm.rank])
                    case = f"{op} of {dtype} {shape}"
                    assert_same(comm.allreduce(mine, op).get(), want, case)
                    assert_same(comm.iallreduce(mine, op).wait().get(), want, case)
                    out = cupy.empty(shape, want.dtype)
                    assert comm.allreduce(mine, op, out=out) is out
                    assert_same(out.get(), want, case)
                    if want.dtype == mine.dtype:
                        comm.allreduce(mine, op, out=mine)
                        assert_same(mine.get(), want, case)


@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
def test_long_ones_go_by_the_carrier_and_short_ones_do_not():
    with setting("GPU_SHORT_BYTES", MOST_BYTES), opened() as (comm, cupy):
        carriers = []
        for count in (1024, 1025, 1, 0, 5000, 1024):
            everyone = [sample("float32", (count,), rank) for rank in range(comm.size)]
            found = comm.allreduce(cupy.asarray(everyone[comm.rank]))
            assert_same(found.get(), expected_reduction("sum", everyone), str(count))
            carriers.append(carrier_of_last(comm))
        short, long = "staged", "peer_memory"
        assert carriers == [short, long, short, None, long, short]
        comm.allreduce(cupy.ones(1024, np.int8), "mean")  # as long as 1024 of float64
        assert carrier_of_last(comm) == long
    with setting("GPU_SHORT_BYTES", MOST_BYTES), opened("peer_memory") as (comm, cupy):
        comm.allreduce(cupy.ones(1))
        assert carrier_of_last(comm) == long


@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
def test_ranks_may_bring_and_call_it_differently():
    """One waits for contiguous memory; others have steps, bytes, streams, or do not block."""
    with opened() as (comm, cupy):
        want = np.arange(100, dtype=np.float32) * comm.size
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            plain = cupy.arange(100, dtype=np.float32)
            steps = cupy.arange(200, dtype=np.float32) / 2
        ways = [
            lambda: comm.allreduce(plain),
            lambda: comm.iallreduce(steps[::2]).wait(),
            lambda: comm.allreduce(plain, out=cupy.empty((100, 2), np.float32)[:, 0]),
            lambda: comm.allreduce(plain, timeout=20),
        ]
        for turn in range(12):
            with stream:
                found = ways[(turn + comm.rank) % len(ways)]()
                assert_same(found.get(), want, f"turn {turn}")


@takes_long()
@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
def test_the_first_calls_of_all_are_under_way_when_a_short_one_begins():
    """Rank 1 waits for each call, the others for none: which way they go is the same."""
    for _ in range(3):
        with communicator_on_gpus("auto", 0) as (comm, cupy):
            arrays = [cupy.full(10, k + comm.rank, np.float64) for k in range(8)]
            works = []
            for array in arrays:
                works.append(comm.iallreduce(array))
                if comm.rank == 1:
                    works[-1].wait()
            for k, work in enumerate(works):
                total = sum(k + rank for rank in range(comm.size))
                assert (work.wait().get() == total).all()
            assert [one.carrier for one in comm.records()[-7:]] == ["staged"] * 7


@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
def test_they_come_after_and_before_what_is_on_the_current_stream():
    with opened() as (comm, cupy):
        for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
            for call in (comm.allreduce, lambda x: comm.iallreduce(x).wait()):
                with stream:
                    mine = cupy.zeros(3000, np.float32)
                    fill_late(mine, comm.rank + 1)
                    total = call(mine)
                    mine.fill(np.nan)
                    total += 1
                    stream.synchronize()
                want = comm.size * (comm.size + 1) / 2 + 1
                assert (total.get() == want).all()


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_its_memory_is_used_again_only_once_results_are_up():
    with opened() as (comm, cupy):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            results = [comm.allreduce(cupy.full(50_000, k, np.float32)) for k in range(20)] + [
                comm.iallreduce(cupy.full(50_000, k, np.float32)).wait() for k in range(20)
            ]
        stream.synchronize()
        for k, found in enumerate(results):
            assert (found.get() == k % 20 * comm.size).all()


@pytest.mark.mpi(ranks=2, timeout_s=40)
@pytest.mark.parametrize(
    ("bring", "words"),
    [
        (lambda cupy, rank: np.ones(5) if rank else cupy.ones(5), "memory=GPU"),
        (lambda cupy, rank: cupy.ones(5 + rank), r"shape=\(6,\)"),
        (lambda cupy, rank: cupy.ones(5, "f4" if rank else "f8"), "dtype=float32"),
        (lambda cupy, rank: cupy.ones(500 + 50 * rank), r"shape=\(550,\)"),  # long on one alone
    ],
)
def test_calls_that_differ_are_refused_on_all_ranks(bring, words):
    with setting("GPU_SHORT_BYTES", MOST_BYTES), opened() as (comm, cupy):
        shutdown.forget(comm)
        with pytest.raises(MismatchError, match=words):
            comm.allreduce(bring(cupy, comm.rank))


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=40)
def test_wrong_arguments_are_told_as_ever():
    with opened() as (comm, cupy):
        mine = cupy.ones(5)
        for _ in range(3):  # at once, too
            assert (comm.allreduce(mine).get() == 2).all()
            with pytest.raises(UsageError, match="not a reduction"):
                comm.allreduce(mine, "median")
            with pytest.raises(ArgumentTypeError, match="expected one of"):
                comm.allreduce(mine, ["sum"])
            with pytest.raises(UsageError, match="has no meaning for dtype float64"):
                comm.allreduce(mine, "xor")
            with pytest.raises(UsageError, match="has no meaning for dtype complex64"):
                comm.allreduce(mine.astype(np.complex64), "max")
            with pytest.raises(ArgumentTypeError, match="cannot be sent"):
                comm.allreduce(mine.view("datetime64[s]"))
        with pytest.raises(UsageError, match=r"expected shape \(5,\)"):
            comm.allreduce(mine, out=cupy.ones(6))
        with pytest.raises(Exception, match="expected an array of CuPy"):
            comm.allreduce(mine, out=np.ones(5))
        assert (comm.allreduce(mine).get() == 2).all()


@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
def test_one_rank_has_no_memory_for_a_result():
    with opened() as (comm, cupy):
        mine = cupy.ones(60_000, np.float64)
        comm.allreduce(mine)
        # A pool of its own: the usual one may have a free part of a block that is in use.
        full = cupy.cuda.MemoryPool()
        full.set_limit(size=1000)
        before = cupy.cuda.get_allocator()
        if comm.rank == 1:
            cupy.cuda.set_allocator(full.malloc)
        try:
            for call in (comm.allreduce, lambda x: comm.iallreduce(x).wait()):
                with pytest.raises(
                    BackendUnavailableError, match="rank 1: GPU:0 is out of memory"
                ):
                    call(mine)
        finally:
            cupy.cuda.set_allocator(before)
        assert (comm.allreduce(mine).get() == comm.size).all()


@pytest.mark.mpi(ranks=2, timeout_s=40)
def test_an_allocator_fails_in_its_own_way():
    with opened() as (comm, cupy):
        shutdown.forget(comm)
        mine = cupy.ones(100)
        comm.allreduce(mine)

        def refuse(nbytes):
            raise MemoryError("none left")

        before = cupy.cuda.get_allocator()
        try:
            if comm.rank == 1:
                cupy.cuda.set_allocator(refuse)
            with pytest.raises(CommunicationError, match="none left"):
                call_twice(comm, mine)
        finally:
            cupy.cuda.set_allocator(before)


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=40)
def test_no_memory_once_the_ranks_have_met():
    """The others may have their result: the communicator breaks, and they hear of it."""
    with opened() as (comm, cupy), pytest.MonkeyPatch.context() as patch:
        shutdown.forget(comm)
        mine, out = cupy.ones(100), cupy.empty((100, 2))[:, 0]
        comm.allreduce(mine, out=out)

        def deliver(result, out):
            if not isinstance(result, np.ndarray) and comm.rank == 1:
                raise cupy.cuda.memory.OutOfMemoryError(1, 2, 3)
            return plainly(result, out)

        module = sys.modules["mpistrat.collectives.operations.allreduce"]
        plainly = module.deliver
        patch.setattr(module, "deliver", deliver)
        with pytest.raises(CommunicationError, match="out of memory"):
            call_twice(comm, mine, out=out)


LATE = """
import cupy, numpy as np
from mpi4py import MPI
from mpistrat.collectives import Communicator
from mpistrat.built_in_sizes import GPU_SHORT_BYTES
with cupy.cuda.Device(0):
    communicator = Communicator(MPI.COMM_WORLD)
    mine = cupy.full(16_384, 1.0 + communicator.rank, np.float32)
    for _ in range(2):
        total = communicator.allreduce(mine)
    communicator.close()
    del communicator
    for _ in range(4):
        pinned = cupy.cuda.alloc_pinned_memory(GPU_SHORT_BYTES)
        np.frombuffer(pinned, np.uint8, GPU_SHORT_BYTES)[:] = 0x41
    print((total.get() == 3).all(), flush=True)
"""


@takes_long()
@pytest.mark.deadline(60)
def test_memory_that_is_still_copied_is_not_lent_out():
    needs_gpus(1)
    env = {
        "PRETEND_LATE_MS": "50",
        "MPISTRAT_GPU_CARRIER": "staged",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    result = run_job(["-c", LATE], 2, timeout_s=50, env=env).check()
    assert [one.stdout.split() for one in result.ranks] == [["True"]] * 2


def test_memory_in_a_cycle_of_garbage_is_kept_until_its_copies_are_over():
    """The collector of cycles destroys an event of CuPy, whoever is handed it meanwhile."""
    needs_gpus(1)
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    host_slot._give_up_parked()
    before = len(host_slot._parked)
    busy = WaitingKernel(stream)
    slots = [host_slot.HostSlot(1024, None) for _ in range(20)]
    for slot in slots:
        slot.event.record(stream)
    slots[0].all = slots
    del slot, slots
    gc.collect()
    for _ in range(3):
        host_slot._give_up_parked()
        assert len(host_slot._parked) == before + 20
    busy.end()
    stream.synchronize()
    host_slot._give_up_parked()
    assert len(host_slot._parked) == before


@pytest.mark.mpi(ranks=2, timeout_s=40)
def test_no_pinned_memory_is_left():
    with communicator_on_gpus("auto", 0) as (comm, cupy), pytest.MonkeyPatch.context() as patch:
        patch.setattr(pinned_regions, "_pin", lambda *_: False)
        patch.setattr(host_slot, "_pinned", lambda nbytes: None)
        comm.allreduce(cupy.ones(1))
        everyone = [sample("float32", (3000,), rank) for rank in range(2)]
        for _ in range(3):
            found = comm.allreduce(cupy.asarray(everyone[comm.rank]))
            assert_same(found.get(), expected_reduction("sum", everyone), "pageable")


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=40)
@pytest.mark.parametrize("options", [{"timeout": 0.5}, {}], ids=["", "at once"])
def test_work_of_the_gpu_that_does_not_end(options):
    with opened() as (comm, cupy), mock.patch.object(config, "timeout_s", return_value=0.5):
        shutdown.forget(comm)
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            comm.allreduce(cupy.ones(10))
            stream.synchronize()
        busy = WaitingKernel(stream) if comm.rank == 1 else None
        with stream, pytest.raises(CommunicationError) as caught:
            comm.allreduce(cupy.ones(10), **options)
        if busy is not None:
            busy.end()
        text = str(caught.value)
        assert isinstance(caught.value, CommunicationTimeoutError | PeerLostError)
        assert "rank 1" in text or comm.rank == 1, text


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=40)
def test_threads_call_at_once():
    """Each has a communicator of its own; the rings of memory are theirs, too."""
    with opened() as (first, cupy), opened() as (second, _):
        failures = []

        def calls(comm):
            try:
                for k in range(50):
                    mine = cupy.full(1000, k + comm.rank, np.float32)
                    assert (comm.allreduce(mine).get() == 2 * k + 1).all()
            except Exception as error:  # noqa: BLE001 - told below
                failures.append(error)

        threads = [threading.Thread(target=calls, args=(one,)) for one in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not failures
