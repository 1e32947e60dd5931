"""Short arrays on GPUs in memory of the host that all ranks have mapped, if it can be pinned."""

import gc

import numpy as np
import pytest

from helpers.gpu.ranks import communicator_on_gpus, fill_late
from mpistrat.collectives.backends.gpu.carriers import staged
from mpistrat.collectives.backends.gpu.memory import pinned_regions
from mpistrat.collectives.backends.shared_memory.segment import Segment
from mpistrat.errors import BackendUnavailableError
from mpistrat.testing.backends.cases import setting
from mpistrat.testing.backends.samples import assert_same, expected_reduction, sample
from mpistrat.testing.sets import takes_long


def slot_of(comm):
    """Return the only slot for short arrays, once one was used."""
    (slots,) = comm._gate.device_backend.short._free.values()
    (slot,) = slots
    return slot


def is_region(slot):
    """Tell whether both halves of a slot are parts of one segment of shared memory."""
    down, up = slot.down.ctypes.data, slot.up.ctypes.data
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(number, 16) for number in line.split()[0].split("-"))
            if begin <= down < end:
                return up == down + slot.down.nbytes and up < end and "mpistrat" in line
    return False


def kind(cupy, memory):
    return cupy.cuda.runtime.pointerGetAttributes(memory.ctypes.data).type


def check_sums(comm, cupy, counts=(1, 3000, 16384, 100_000, 262_144)):
    for count in counts:
        everyone = [sample("float32", (count,), rank) for rank in range(comm.size)]
        want = expected_reduction("sum", everyone)
        mine = cupy.asarray(everyone[comm.rank])
        for case in range(3):
            assert_same(comm.allreduce(mine).get(), want, f"{count} {case}")
        comm.allreduce(mine, out=mine)
        assert_same(mine.get(), want, f"{count} in place")


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_the_slot_is_shared_and_pinned_and_given_back():
    """The next communicator's memory has the same place, which could not be pinned twice."""
    for _ in range(3):
        with communicator_on_gpus("auto", 0) as (comm, cupy):
            check_sums(comm, cupy, (1, 100_000))
            pinned = kind(cupy, np.frombuffer(cupy.cuda.alloc_pinned_memory(8), np.uint8))
            slot = slot_of(comm)
            assert is_region(slot)
            for memory in (slot.down, slot.up):
                assert kind(cupy, memory) == pinned != kind(cupy, np.zeros(1))
        del slot, memory, comm
        gc.collect()


@takes_long()
@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_sums_of_all_lengths():
    with communicator_on_gpus("auto", 0) as (comm, cupy):
        check_sums(comm, cupy)


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_one_rank_cannot_pin_its_own():
    with communicator_on_gpus("auto", 0) as (comm, cupy), pytest.MonkeyPatch.context() as patch:
        if comm.rank == 1:
            patch.setattr(pinned_regions, "_pin", lambda *_: False)
        check_sums(comm, cupy, (1, 16384, 100_000))
        assert is_region(slot_of(comm)) == (comm.rank != 1)


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("rank_without", [None, 1])
def test_long_arrays_are_reduced_where_they_were_copied_to(rank_without):
    """In windows, two at a time; also where one rank has memory that others cannot reach."""
    with (
        setting("GPU_SHORT_BYTES", 0),
        setting("GPU_BUFFER_BYTES", 256 << 10),
        communicator_on_gpus("staged", 0) as (comm, cupy),
        pytest.MonkeyPatch.context() as patch,
    ):
        if comm.rank == rank_without:
            patch.setattr(pinned_regions, "_pin", lambda *_: False)
        check_sums(comm, cupy, (1, 100_000, 600_000))


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_no_shared_memory_is_left():
    def refuse(segment, start, nbytes):
        raise OSError(28, "No space left on device")

    with communicator_on_gpus("auto", 0) as (comm, cupy), pytest.MonkeyPatch.context() as patch:
        if comm.rank == 1:
            patch.setattr(Segment, "allocate", refuse)
        check_sums(comm, cupy, (1, 16384))
        assert not is_region(slot_of(comm))


@pytest.mark.mpi(ranks=2, timeout_s=60)
@pytest.mark.parametrize("carrier", ["auto", "staged"])
def test_no_memory_of_its_own_either(carrier):
    """An error on all ranks, or slower copies; the communicator stays usable."""

    def no_memory(*_):
        raise MemoryError("no room")

    with communicator_on_gpus(carrier, 0) as (comm, cupy), pytest.MonkeyPatch.context() as patch:
        if comm.rank == 1:
            patch.setattr(pinned_regions, "_pin", lambda *_: False)
            patch.setattr(staged.Staged, "_pinned", no_memory)
        if carrier == "auto":
            check_sums(comm, cupy, (1, 100_000))
            return
        with pytest.raises(BackendUnavailableError, match=r"rank 1: no \d+ bytes.*no room"):
            comm.allreduce(cupy.ones(1))
        assert comm.allreduce(np.ones(1))[0] == 2


def test_the_library_of_hip_cannot_be_opened_again(monkeypatch, tmp_path):
    maps = tmp_path / "maps"
    for path in ("/nowhere/with space/libamdhip64.so.7", "/gone/libamdhip64.so.7 (deleted)"):
        maps.write_text(f"7fe0-7fe1 r-xp 00000000 fe:00 160 {path}\n")
        monkeypatch.setattr(pinned_regions, "_MAPS", maps)
        pinned_regions._hip.cache_clear()
        assert pinned_regions._hip() is None
    monkeypatch.setattr(pinned_regions, "_MAPS", tmp_path / "none")
    pinned_regions._hip.cache_clear()
    assert pinned_regions._hip() is None
    pinned_regions._hip.cache_clear()


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_result_is_copied_before_the_next_one_is_written():
    """The ranks write to each other's memory, but not while a GPU still copies from it."""
    with communicator_on_gpus("auto", 0) as (comm, cupy):
        comm.allreduce(cupy.ones(1))
        stream = cupy.cuda.Stream(non_blocking=True)
        totals = []
        for turn in range(6):
            with stream if turn % 2 == comm.rank else cupy.cuda.Stream.null:
                mine = cupy.empty(20_000, np.float32)
                fill_late(mine, turn + comm.rank)
                totals.append(comm.iallreduce(mine).wait())
        cupy.cuda.runtime.deviceSynchronize()
        for turn, total in enumerate(totals):
            assert_same(total.get(), np.full(20_000, 2 * turn + 1, np.float32), str(turn))
