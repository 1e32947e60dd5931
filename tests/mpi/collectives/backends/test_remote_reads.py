"""Long private arrays, which the ranks of a node read where they are (kernels/shm/peer_read)."""

import ctypes
import mmap
import os

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.collectives.backends import shm
from mpistrat.collectives.backends.shared_memory.tuning import CALLS, HALVES, Tuning
from mpistrat.errors import MismatchError
from mpistrat.testing.backends.samples import assert_same, expected_reduction, sample
from mpistrat.testing.sets import takes_long, with_all

COUNTS = (1, 63, 64, 4097, 300_007)
RANKS = [2, 3, 5] if with_all() else [2, 3]
_MEMFD_SECRET = 447


def world():
    """Return the job; on the ranks only, since importing mpi4py starts MPI."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


def reading(remote_bytes=1):
    """Return a communicator whose ranks read each other's arrays from `remote_bytes` on."""
    comm = Communicator(world(), "shm")
    tune(comm, remote_bytes)
    return comm


def tune(comm, remote_bytes):
    """Let calls read arrays where they are from `remote_bytes` on."""
    way = Tuning(flat_bytes=1, remote_bytes=remote_bytes)
    comm.backend.tune({call + kind: way for call in CALLS for kind in ("", HALVES)})


def inputs(comm, count, name="float32"):
    return [sample(name, (count,), rank) for rank in range(comm.size)]


def secret(nbytes):
    """Return memory that the kernel reads for nobody; skip if this system has none."""
    fd = ctypes.CDLL(None, use_errno=True).syscall(_MEMFD_SECRET, 0)
    if fd < 0:
        pytest.skip(f"memfd_secret: {os.strerror(ctypes.get_errno())}")
    os.ftruncate(fd, nbytes)
    memory = mmap.mmap(fd, nbytes)
    os.close(fd)
    return np.frombuffer(memory, np.uint8)


@pytest.mark.mpi(ranks=[2, 3])
def test_ranks_of_one_user_read_each_other():
    with Communicator(world(), "shm") as comm:
        assert comm.backend.reads_peers


@pytest.mark.mpi(ranks=RANKS)
@pytest.mark.parametrize("name", ["bool", "int8", "bfloat16", "float32", "complex128"])
def test_same_bits_as_through_slots(name):
    op = "max" if name == "bool" else "sum"
    with reading() as comm:
        for count in COUNTS:
            mine = inputs(comm, count, name)[comm.rank]
            tune(comm, 1 << 50)
            by_slots = comm.allreduce(mine, op)
            tune(comm, 1)
            assert comm.allreduce(mine, op).tobytes() == by_slots.tobytes(), count
            assert comm.allreduce(mine, op, out=mine) is mine
            assert mine.tobytes() == by_slots.tobytes(), count


@takes_long()
@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("name", ["float16", "float32", "int32"] if with_all() else ["float32"])
def test_ranks_that_find_out_which_way_is_faster(name):
    """They try both, and go on as they like; whichever way, the sums are right."""
    with Communicator(world(), "shm") as comm:
        for count in (600_011, 7_000_003):
            arrays = inputs(comm, count, name)
            wanted = expected_reduction("sum", arrays)
            out = np.empty_like(wanted)
            for i in range(70 if count < 1_000_000 else 6):
                out[:] = i
                assert_same(comm.allreduce(arrays[comm.rank], out=out), wanted, f"{count}, {i}")
            assert_same(comm.allreduce(arrays[comm.rank].copy()), wanted, "a new array")


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("stream_bytes", [1, 1 << 50])
@pytest.mark.parametrize("whole_bytes", [1, 1 << 50])
def test_every_way_that_is_found_out_gives_the_same_sums(whole_bytes, stream_bytes):
    """Slots through and past the caches, and reads; halves and whole chunks; lists; in place."""
    with Communicator(world(), "shm") as comm:
        way = Tuning(whole_bytes=whole_bytes, stream_bytes=stream_bytes)
        comm.backend.tune({"allreduce": way})
        for counts in ([300_007], [5, 100_003, 0, 70_001]):
            lists = [
                [sample("float32", (count,), rank + i) for i, count in enumerate(counts)]
                for rank in range(comm.size)
            ]
            for i in range(8):
                totals = comm.allreduce_many(lists[comm.rank])
                for total, *arrays in zip(totals, *lists, strict=True):
                    wanted = expected_reduction("sum", arrays)
                    assert_same(total, wanted, f"{counts}, {i}")
                    mine = arrays[comm.rank].copy()
                    assert_same(comm.allreduce(mine, out=mine), wanted, f"in place, {i}")


@pytest.mark.mpi(ranks=2)
@pytest.mark.parametrize("num_arrays", [1, 3])
def test_ranks_find_out_after_calls_that_differed(num_arrays):
    """What one rank called and another did not changes nothing in how they go on."""
    count = 300_000
    with Communicator(world(), "shm") as comm:
        for _ in range(3):
            with pytest.raises(MismatchError):
                comm.allreduce_many([np.ones(count << comm.rank, np.float32)] * num_arrays)
        for i in range(40):
            mine = [np.full(count, i + comm.rank + j, np.float32) for j in range(num_arrays)]
            for j, total in enumerate(comm.allreduce_many(mine)):
                assert (total == 2 * (i + j) + 1).all(), (i, j)


@pytest.mark.mpi(ranks=2)
def test_ranks_find_out_for_each_kind_of_memory():
    """Private, registered and shared arrays of one length in turn, on all ways that there are."""
    count = 300_000
    with Communicator(world(), "shm") as comm:
        mine, own = (comm.empty(count, np.float32) for _ in range(2))
        shared = comm.empty(count, np.float32, shared=True)
        private = np.empty(count, np.float32)
        for i in range(80):
            send = mine if i % 2 else np.empty(count, np.float32)
            out = (private, own, shared)[i % 3]
            send[:] = i + comm.rank
            comm.allreduce(send, out=out)
            assert (out == 2 * i + 1).all(), i
            comm.barrier()  # before the next sources are written


@pytest.mark.mpi(ranks=[2, 3])
def test_parts_of_arrays_at_other_offsets_on_each_rank():
    with reading() as comm:
        whole = np.full(200_000, -1.0, np.float32)
        for count in (17, 5_000, 150_001):
            arrays = inputs(comm, count)
            part = whole[7 * comm.rank + 1 :][:count]
            part[:] = arrays[comm.rank]
            comm.allreduce(part, out=part)
            assert_same(part, expected_reduction("sum", arrays), str(count))
            part[:] = -1.0
            assert (whole == -1.0).all()


@pytest.mark.mpi(ranks=[2, 3])
def test_a_result_that_overlaps_its_source():
    with reading() as comm:
        memory = np.zeros(100_000, np.float32)
        source, result = memory[:-1], memory[1:]
        source[:] = inputs(comm, source.size)[comm.rank]
        comm.allreduce(source, out=result)
        assert_same(result, expected_reduction("sum", inputs(comm, source.size)), "overlapping")


@pytest.mark.mpi(ranks=[2, 3])
def test_lists_of_arrays_in_more_pieces_than_one_read_takes():
    shapes = [(i % 13,) for i in range(500)] + [(40_001,), ()]
    with reading() as comm:
        lists = [
            [sample("float64", shape, rank + 7 * i) for i, shape in enumerate(shapes)]
            for rank in range(comm.size)
        ]
        totals = comm.allreduce_many(lists[comm.rank])
        for total, *arrays in zip(totals, *lists, strict=True):
            assert_same(total, expected_reduction("sum", arrays), str(total.shape))


@pytest.mark.mpi(ranks=2)
def test_more_pieces_than_a_rank_can_tell():
    with reading() as comm:
        arrays = [np.float64(comm.rank + i) for i in range(20_000)]
        totals = comm.allreduce_many(arrays)
        assert [float(total) for total in totals] == [2.0 * i + 1 for i in range(20_000)]


@pytest.mark.mpi(ranks=[2, 3])
@pytest.mark.parametrize("kind", ["source", "result", "both"])
def test_memory_of_one_rank_that_nobody_can_read(kind):
    with reading() as comm:
        count = 50_003
        arrays = inputs(comm, count)
        send, recv = arrays[comm.rank], np.empty(count, np.float32)
        if comm.rank == 1:
            nbytes = -(-send.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            if kind in ("source", "both"):
                send = secret(nbytes)[: send.nbytes].view(np.float32)
                send[:] = arrays[1]
            if kind in ("result", "both"):
                recv = secret(nbytes)[: send.nbytes].view(np.float32)
        for _ in range(3):
            comm.allreduce(send, out=recv)
            assert_same(recv, expected_reduction("sum", arrays), kind)


def moved(comm, array, root):
    """Return what each call that moves data makes of `array`, whose rows differ by rank."""
    rows = array.shape[0] // comm.size * comm.size
    splits = [i + comm.rank for i in range(comm.size)]
    return [
        comm.allgather(array),
        comm.gather(array, root),
        comm.scatter(array if comm.rank == root else None, root),
        comm.alltoall(array[:rows]),
        comm.alltoall(array[: sum(splits)], splits),
        comm.reduce_scatter(array[: 40 * comm.size + 1]),
        comm.bcast(array[:40], root),
    ]


@pytest.mark.mpi(ranks=RANKS)
@pytest.mark.parametrize("root", [0, 1])
def test_what_is_moved_is_the_same_as_through_slots(root):
    with reading() as comm:
        for width in (0, 1, 700):
            array = sample("float32", (300 + 7 * comm.rank, width), comm.rank)
            tune(comm, 1 << 50)
            by_slots = moved(comm, array, root)
            tune(comm, 1)
            for found, expected in zip(moved(comm, array, root), by_slots, strict=True):
                assert (found is None) == (expected is None)
                assert found is None or found.tobytes() == expected.tobytes()


@pytest.mark.mpi(ranks=[2, 3])
def test_what_is_moved_out_of_memory_that_nobody_can_read():
    with reading() as comm:
        array = sample("float32", (300, 40), comm.rank)
        tune(comm, 1 << 50)
        by_slots = moved(comm, array, 1)
        tune(comm, 1)
        if comm.rank == 1:
            hidden = secret(-(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)
            hidden = hidden[: array.nbytes].view(np.float32).reshape(array.shape)
            hidden[:] = array
            array = hidden
        for found, expected in zip(moved(comm, array, 1), by_slots, strict=True):
            assert found is None or found.tobytes() == expected.tobytes()


@pytest.mark.mpi(ranks=[2, 3])
def test_one_rank_that_may_not_read():
    """All ranks then use slots, and the log says who may not read whom."""

    class Forbidden:
        def __getattr__(self, name):
            return getattr(kernels, name)

        def has_token(self, pid, address, value):
            return False

    kernels = shm.kernels()
    with pytest.MonkeyPatch.context() as patch:
        if world().Get_rank() == 1:
            patch.setattr(shm, "kernels", Forbidden)
        comm = Communicator(world(), "shm")
    with comm:
        assert not comm.backend.reads_peers
        arrays = inputs(comm, 1_000_003)
        total = comm.allreduce(arrays[comm.rank])
        assert_same(total, expected_reduction("sum", arrays), "through slots")


@pytest.mark.mpi(ranks=2)
def test_mismatch_is_told_before_anything_is_read():
    with reading() as comm:
        array = np.zeros(100_000 + comm.rank, np.float32)
        with pytest.raises(MismatchError):
            comm.allreduce(array)
        assert comm.allreduce(np.ones(100_000, np.float32))[-1] == comm.size
