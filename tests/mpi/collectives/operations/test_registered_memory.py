"""Registered memory: ``communicator.empty`` and what calls make of such arrays."""

import gc
from pathlib import Path

import numpy as np
import pytest

from helpers.collectives.registered_memory import COUNTS, filled, inputs, world
from mpistrat.collectives import Communicator
from mpistrat.errors import (
    ArgumentTypeError,
    BackendUnavailableError,
    MismatchError,
    UsageError,
)
from mpistrat.testing.backends.samples import assert_same, expected_reduction
from mpistrat.testing.sets import takes_long
from mpistrat.testing.threads import run_ranks


@pytest.mark.mpi(ranks=[2, 3])
@pytest.mark.parametrize("name", ["int64", "float32", "bfloat16", "bool"])
def test_in_place_and_out_of_place(name):
    with Communicator(world(), "shm") as comm:
        for count in COUNTS:
            arrays = inputs(comm, count, name)
            total = expected_reduction("sum", arrays)
            mine = arrays[comm.rank]
            send, recv = filled(comm, mine), comm.empty(mine.shape, mine.dtype)
            assert_same(comm.allreduce(send), total, "from registered memory")
            assert comm.allreduce(mine, out=recv) is recv
            assert_same(np.array(recv), total, "to registered memory")
            recv[:] = 0
            comm.allreduce(send, out=recv)
            assert_same(np.array(recv), total, "from and to registered memory")
            assert_same(np.array(send), mine, "what was sent")
            comm.allreduce(send, out=send)
            assert_same(np.array(send), total, "in place")


@pytest.mark.mpi(ranks=[2, 3])
def test_ranks_that_registered_and_ranks_that_did_not():
    """Each combination of what the last rank has registered and what the others have."""
    with Communicator(world(), "shm") as comm:
        is_last = comm.rank == comm.size - 1
        for count in COUNTS[2:]:
            arrays = inputs(comm, count)
            total, mine = expected_reduction("sum", arrays), arrays[comm.rank]
            send, recv = filled(comm, mine), comm.empty(mine.shape, mine.dtype)
            for kind in range(16):
                has_send, has_recv = ((kind & 3), (kind >> 2))[is_last] & 1, (kind >> is_last) & 2
                out = recv if has_recv else np.empty_like(mine)
                out[:] = -1
                comm.allreduce(send if has_send else mine, out=out)
                assert_same(np.array(out), total, f"combination {kind}")


@pytest.mark.mpi(ranks=[2, 3])
def test_any_part_of_an_array():
    """Parts at other offsets on each rank, unaligned to pages and cache lines, up to both ends."""
    with Communicator(world(), "shm") as comm:
        count = COUNTS[-1]
        arrays = inputs(comm, count)
        total, mine = expected_reduction("sum", arrays), arrays[comm.rank]
        room = comm.empty(2 * count + 100, mine.dtype)
        for start, to in [
            (0, count),
            (3, count + 50),
            (count + 100, 7),
            (11 + comm.rank, count + 90),
        ]:
            room[:] = -1
            room[start : start + count] = mine
            comm.allreduce(room[start : start + count], out=room[to : to + count])
            assert_same(np.array(room[to : to + count]), total, f"part at {start} to {to}")
            np.testing.assert_array_equal(room[start : start + count], mine)
            written = np.flatnonzero(room != -1)
            assert written[0] >= min(start, to)
            assert written[-1] < max(start, to) + count
        # Overlapping parts are not written while they are read.
        room[:count] = mine
        comm.allreduce(room[:count], out=room[1000 : 1000 + count])
        assert_same(np.array(room[1000 : 1000 + count]), total, "overlapping")


@pytest.mark.mpi(ranks=[2, 3])
def test_every_operation_takes_it():
    with Communicator(world(), "shm") as comm:
        arrays = inputs(comm, 60_000)
        registered = filled(comm, arrays[comm.rank])
        last = comm.size - 1
        np.testing.assert_array_equal(comm.allgather(registered), np.concatenate(arrays))
        np.testing.assert_array_equal(
            comm.alltoall(registered)[:9], arrays[0][comm.rank * 60_000 // comm.size :][:9]
        )
        reduced = comm.reduce(registered, "max", last)
        assert reduced is None or (reduced == expected_reduction("max", arrays)).all()
        first, second = comm.allreduce_many([registered, registered[:5]])
        np.testing.assert_array_equal(first, expected_reduction("sum", arrays))
        np.testing.assert_array_equal(second, first[:5])
        comm.bcast(registered, last, out=registered)
        np.testing.assert_array_equal(registered, arrays[last])


@pytest.mark.mpi(ranks=[2, 3])
def test_a_list_of_parts_that_follow_one_another():
    """They are one array to the kernels on the ranks where they do, whatever the others have."""
    sizes = [100_003, 1, 0, 70_000]
    with Communicator(world(), "shm") as comm:
        arrays = inputs(comm, sum(sizes))
        mine, total = arrays[comm.rank], expected_reduction("sum", arrays)
        ends = np.cumsum(sizes)[:-1]
        registered, shared = filled(comm, mine), comm.empty(mine.shape, mine.dtype, shared=True)
        apart = [part.copy() for part in np.split(mine, ends)]
        for sends in (np.split(registered, ends), np.split(mine, ends), apart):
            comm.barrier()
            if comm.rank == 0:
                shared[:] = -1
            comm.barrier()
            comm.allreduce_many(sends, out=np.split(shared, ends))
            assert_same(np.array(shared), total, "into shared memory")
            assert_same(np.concatenate(comm.allreduce_many(sends)), total, "into new memory")


@pytest.mark.mpi(ranks=[2])
def test_ranks_of_whom_one_has_parts_that_follow_one_another_go_the_same_ways():
    """Two ranks count their calls alike to agree on the way; algorithm_choice.h."""
    with Communicator(world(), "shm") as comm:
        mine = np.full(200_000, comm.rank + 1.0)
        parts = np.split(mine, [90_000])
        if comm.rank:
            parts = [part.copy() for part in parts]
        for number in range(100):
            if number % 3 == 0:
                assert (comm.allreduce(mine) == 3.0).all()
            for total in comm.allreduce_many(parts):
                assert (total == 3.0).all()


# ------------------------------------------------------------------------------- shared by all


@pytest.mark.mpi(ranks=[2, 3])
def test_a_result_that_all_ranks_share():
    with Communicator(world(), "shm") as comm:
        for count in COUNTS:
            arrays = inputs(comm, count)
            total, mine = expected_reduction("sum", arrays), arrays[comm.rank]
            shared, send = comm.empty(mine.shape, mine.dtype, shared=True), filled(comm, mine)
            for source in (mine, send, mine if comm.rank else send):
                comm.barrier()
                if comm.rank == 0:
                    shared[:] = -1
                comm.barrier()
                assert comm.allreduce(source, out=shared) is shared
                assert_same(np.array(shared), total, f"shared, {count}")
            comm.barrier()
            shared[comm.rank] = -comm.rank  # written by one, seen by all
            comm.barrier()
            np.testing.assert_array_equal(shared[: comm.size], -np.arange(comm.size))


@pytest.mark.mpi(ranks=[2, 3])
def test_a_shared_array_is_reduced_in_place():
    """Every rank brings the same: none may read what another has already written."""
    with Communicator(world(), "shm") as comm:
        for count in (2, 300, 3001, (100 << 10) // 8, COUNTS[-1]):
            shared = comm.empty(count, np.int64, shared=True)
            for _ in range(20):
                comm.barrier()
                if comm.rank == 0:
                    shared[:] = np.arange(count)
                comm.barrier()
                comm.allreduce(shared, out=shared)
                comm.barrier()
                np.testing.assert_array_equal(shared, comm.size * np.arange(count), str(count))


# --------------------------------------------------------------------------------- given back


def mappings():
    return len(Path("/proc/self/maps").read_text().splitlines())


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def shared_bytes():
    """Return the bytes of shared memory that this process has mapped and touched."""
    return int(Path("/proc/self/statm").read_text().split()[2]) * 4096


@takes_long()
@pytest.mark.mpi(ranks=[2, 3])
@pytest.mark.parametrize("is_shared", [False, True])
def test_dropped_arrays_are_given_back(is_shared):
    with Communicator(world(), "shm") as comm:
        total = comm.size * np.arange(100_000)

        def make_and_drop():
            for count in (100_000, 500):
                array = comm.empty(count, np.int64, shared=is_shared)
                array[:] = np.arange(count)
                comm.barrier()
                result = comm.allreduce(array)
                assert (result == total[:count]).all()

        for _ in range(5):
            make_and_drop()
        gc.collect()
        before = mappings(), shared_bytes()
        for _ in range(50):
            make_and_drop()
        gc.collect()
        assert mappings() <= before[0] + 4
        assert shared_bytes() < before[1] + (2 << 20)


@pytest.mark.mpi(ranks=2)
def test_a_rank_that_keeps_its_array_keeps_that_of_the_others():
    with Communicator(world(), "shm") as comm:
        array = comm.empty(50_000, np.int64)
        array[:] = 7
        kept = array[100:] if comm.rank == 0 else None
        del array
        for i in range(5):
            other = comm.empty(50_000, np.int64)
            other[:] = i
            assert (comm.allreduce(other) == 2 * i).all()
        if kept is not None:
            assert (kept == 7).all()
        plain = np.full(50_000 - 100, 1)
        result = comm.allreduce(plain if kept is None else kept)
        assert (result == 8).all()


@pytest.mark.mpi(ranks=2)
def test_arrays_outlive_their_communicator():
    with Communicator(world(), "shm") as comm:
        array = comm.empty(1000, np.int64)
        shared = comm.empty(1000, np.int64, shared=True)
        array[:] = 3
        comm.allreduce(array, out=shared)
    del comm
    gc.collect()
    assert (array == 3).all()
    assert (shared == 6).all()
    with Communicator(world(), "shm") as comm:  # to which they are plain memory
        assert (comm.allreduce(array, out=array) == 6).all()


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=40)
def test_closed_communicators_give_their_memory_back():
    def work():
        with Communicator(world(), "shm") as comm:
            array = comm.empty(200_000)
            array[:] = comm.rank
            assert comm.allreduce(array)[0] == 1

    for _ in range(5):
        work()
    gc.collect()
    before = mappings(), resident_bytes()
    for _ in range(30):
        work()
    gc.collect()
    assert mappings() <= before[0] + 4
    assert resident_bytes() < before[1] + (5 << 20)


# ------------------------------------------------------------------------------------ mistakes


@pytest.mark.mpi(ranks=[2, 3])
def test_unequal_requests_are_a_mismatch_on_every_rank():
    with Communicator(world(), "shm") as comm:
        is_first = comm.rank == 0
        for shape, options in [
            (3 + is_first, {}),
            (3, {"dtype": np.float32 if is_first else np.float64}),
            (3, {"shared": is_first}),
            ((3, 1) if is_first else 3, {}),
        ]:
            with pytest.raises(MismatchError, match="empty"):
                comm.empty(shape, **options)
        with pytest.raises(MismatchError):
            comm.empty(3) if is_first else comm.barrier()
        assert comm.allreduce(1) == comm.size


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize(
    ("shape", "dtype", "error"),
    [
        (-1, float, UsageError),
        ((2, -3), float, UsageError),
        ("ab", float, ArgumentTypeError),
        (None, float, ArgumentTypeError),
        (2.5, float, ArgumentTypeError),
        (3, "no dtype", ArgumentTypeError),
        (3, object, ArgumentTypeError),
        (3, "U5", ArgumentTypeError),
        (3, ">f8", ArgumentTypeError),
    ],
)
def test_bad_arguments(shape, dtype, error):
    with Communicator(world(), "shm") as comm:
        with pytest.raises(error):
            comm.empty(shape, dtype)
        if comm.rank == 0:  # and of one rank alone
            with pytest.raises(error):
                comm.empty(shape, dtype)
        else:
            with pytest.raises(MismatchError, match=error.__name__):
                comm.empty(3)
        assert comm.allreduce(1) == comm.size


@pytest.mark.mpi(ranks=[2, 3])
def test_shapes():
    with Communicator(world(), "shm") as comm:
        for shape in (0, 1, (), (0, 3), (2, 3, 4), [5], np.int64(4), (np.int32(2), 2)):
            for is_shared in (False, True):
                like = np.empty(shape, np.float32)
                array = comm.empty(shape, "f4", shared=is_shared)
                array[...] = 1
                assert (array.shape, array.dtype) == (like.shape, like.dtype)
                assert array.flags.c_contiguous
                assert array.flags.writeable
                assert array.ctypes.data % 4096 == 0
                total = comm.allreduce(array)
                assert (total == comm.size).all()
                assert total.shape == like.shape


# ---------------------------------------------------------------------------- other backends


def check_plain(comm):
    array = comm.empty((3, 4), np.float32)
    assert (type(array), array.shape, array.dtype) == (np.ndarray, (3, 4), np.float32)
    array[:] = comm.rank
    assert (comm.allreduce(array) == sum(range(comm.size))).all()
    assert comm.empty(0).size == 0
    if comm.size == 1:
        assert comm.empty(3, shared=True).shape == (3,)  # with itself
        return
    name = comm.backend.name
    with pytest.raises(BackendUnavailableError, match=f"{name}.*leave out shared=True"):
        comm.empty(3, shared=True)
    with pytest.raises(MismatchError):
        comm.empty(3, shared=comm.rank == 0)
    assert comm.allreduce(1) == comm.size


@pytest.mark.mpi(ranks=[2, 3])
def test_mpi_gives_plain_arrays():
    with Communicator(world(), "mpi") as comm:
        check_plain(comm)


@pytest.mark.parametrize("size", [1, 3])
def test_threads_give_plain_arrays(size):
    def rank(handle):
        with Communicator(handle) as comm:
            check_plain(comm)

    run_ranks(size, rank)
