"""Shared memory: the right answer at every size where one way gives way to another, and the same
bits on every rank in every run."""

import hashlib
import os
import time
import weakref

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.testing.backends.samples import expected_reduction, get_dtype, ops_for, sample
from mpistrat.testing.sets import takes_long, with_all

# Where kernels/shm does things another way, in bytes: what rides in a line (shm.h), and Tuning in
# default_tuning.h; short slots and the laps of the ring in layout.h.
INLINE, TIMED, SHORT, FLAT, PROBE, CHUNK = 224, 1 << 10, 2 << 10, 64 << 10, 16 << 10, 256 << 10
LAP, STREAM = 2 << 20, 20 << 20


def world():
    """Return the job; on the ranks only, since importing mpi4py starts MPI."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


def around(*sizes):
    return [size + step for size in sizes for step in (-1, 0, 1)]


def rows(count, size):
    """Return the arrays of all ranks, of bytes that no shift or exchange leaves as they are."""
    ramp = np.arange(count, dtype=np.uint32)
    return [(ramp * 7 + (ramp >> 8) + 31 * rank).astype(np.uint8) for rank in range(size)]


def same(got, want, *what):
    assert got.dtype == want.dtype, what
    assert got.shape == want.shape, what
    if not np.array_equal(got, want):
        at = int(np.flatnonzero(got != want)[0])
        pytest.fail(f"{what}: element {at} of {got.size} is {got[at]}, expected {want[at]}")


def piece(array, size, rank):
    return np.array_split(array, size)[rank]


def check_moves(comm, arrays, root):
    """Check each operation that moves data, with all ranks' `arrays`."""
    mine, rank, size, count = arrays[comm.rank], comm.rank, comm.size, arrays[0].size
    everything = np.concatenate(arrays)
    same(comm.bcast(mine, root), arrays[root], "bcast", count, root)
    same(comm.allgather(mine), everything, "allgather", count)
    gathered = comm.gather(mine, root)
    if rank == root:
        same(gathered, everything, "gather", count, root)
    cut = comm.scatter(mine if rank == root else None, root)
    same(cut, piece(arrays[root], size, rank), "scatter", count, root)
    splits = [part.size for part in np.array_split(mine, size)]
    exchanged = np.concatenate([piece(array, size, rank) for array in arrays])
    same(comm.alltoall(mine, splits), exchanged, "alltoall", count)


def check_reductions(comm, arrays, op, root):
    mine, total = arrays[comm.rank], expected_reduction(op, arrays)
    what = op, mine.dtype, mine.size
    same(comm.allreduce(mine, op), total, "allreduce", *what)
    part = piece(total, comm.size, comm.rank)
    same(comm.reduce_scatter(mine, op), part, "reduce_scatter", *what)
    reduced = comm.reduce(mine, op, root)
    if comm.rank == root:
        same(reduced, total, "reduce", *what, root)


@takes_long()
@pytest.mark.mpi(ranks=[2, 3, 4] if with_all() else 3, timeout_s=60)
def test_every_size_at_which_the_way_changes():
    with Communicator(world(), "shm") as comm:
        limits = around(
            INLINE, TIMED, SHORT, FLAT // comm.size, FLAT, PROBE, CHUNK, 2 * CHUNK, LAP
        )
        for i, count in enumerate([0, 1, 2, 3, 63, 64, 65, *limits, 3 * CHUNK + 12345]):
            arrays = rows(count, comm.size)
            check_moves(comm, arrays, root=i % comm.size)
            for op in ("sum", "max"):
                check_reductions(comm, arrays, op, root=(i + 1) % comm.size)


@takes_long()
@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
def test_every_reduction_of_every_dtype_around_a_chunk():
    names = ("bool", "int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float32")
    with Communicator(world(), "shm") as comm:
        for i, name in enumerate((*names, "float64", "complex64", "complex128")):
            itemsize = get_dtype(name).itemsize
            for op in ops_for(name):
                for count in (FLAT // itemsize // comm.size + 1, CHUNK // itemsize + 1):
                    arrays = [sample(name, (count,), rank) for rank in range(comm.size)]
                    check_reductions(comm, arrays, op, root=i % comm.size)


@takes_long()
@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("step", [-1, 0])
def test_results_written_past_the_caches(step):
    with Communicator(world(), "shm") as comm:
        rank, size = comm.rank, comm.size
        ramps = [np.arange(STREAM // 4 + step, dtype=np.int32) * (r + 1) for r in range(size)]
        total = sum(ramps)
        array = ramps[rank].copy()
        same(comm.allreduce(array), total, "allreduce")
        assert comm.allreduce(array, out=array) is array
        same(array, total, "allreduce in place")
        reduced = comm.reduce(ramps[rank], root=1)
        if rank == 1:
            same(reduced, total, "reduce")
        same(comm.bcast(ramps[rank], root=1), ramps[1], "bcast")
        part = STREAM // 4 // size + step
        gathered = comm.allgather(ramps[rank][:part])
        same(gathered, np.concatenate([ramp[:part] for ramp in ramps]), "allgather")


@takes_long()
@pytest.mark.mpi(ranks=[2, 3])
def test_lists_of_arrays_around_a_chunk():
    """Pieces that begin and end anywhere in a chunk; some are empty."""
    with Communicator(world(), "shm") as comm:
        for sizes in ([1, 0, CHUNK - 1], [CHUNK, 0, 3], [INLINE - 1, 1], [70000, 70001, 3, CHUNK]):
            arrays = [rows(count, comm.size) for count in sizes]
            found = comm.allreduce_many([array[comm.rank] for array in arrays])
            for got, array in zip(found, arrays, strict=True):
                same(got, expected_reduction("sum", array), "allreduce_many", sizes)


@pytest.mark.mpi(ranks=2)
def test_nothing_is_kept_of_a_call_that_is_done():
    with Communicator(world(), "shm") as comm:
        source = np.ones(1 << 20, np.uint8)
        gone, places = weakref.ref(source), set()
        for _ in range(4):
            places.add(comm.allreduce_many([source, source])[0].ctypes.data)
        assert len(places) == 1  # the results of the last call, which nobody has any more
        del source
        assert gone() is None


# ------------------------------------------------------------------------------- the same bits

NOISY = ("float32", "float16", "bfloat16", "complex64")


def noise(random, name, count):
    """Return numbers of so many magnitudes that each order of a sum gives other bits."""
    dtype = get_dtype(name)
    numbers = random.standard_normal(count) * 10 ** random.uniform(-3, 3, count)
    if dtype.kind == "c":
        return (numbers + 1j * np.roll(numbers, 1)).astype(dtype)
    return numbers.astype(dtype)


def digests(comm, calls, delays):
    """Make `calls` all-reduces; return a digest of each result."""
    same_random, own_random = np.random.default_rng(1), np.random.default_rng(100 + comm.rank)
    found = []
    for i in range(calls):
        count = int(10 ** same_random.uniform(0, 5))
        array = noise(own_random, NOISY[i % len(NOISY)], count)
        if delays is not None and delays.random() < 0.5:
            time.sleep(delays.uniform(0, 3e-3))
        result = comm.allreduce(array, ("sum", "mean", "prod")[i % 3])
        found.append(hashlib.blake2b(result.tobytes(), digest_size=8).hexdigest())
    return found


@takes_long()
@pytest.mark.mpi(ranks=[2, 3, 4] if with_all() else 3, timeout_s=60)
def test_whoever_comes_late_changes_no_bit():
    with np.errstate(all="ignore"), Communicator(world(), "shm") as comm:
        punctual = digests(comm, 200, None)
        assert len(set(punctual)) == 200
        late = digests(comm, 200, np.random.default_rng())  # of another seed each time
        assert late == punctual
        assert comm.allgather_object(punctual) == [punctual] * comm.size


@pytest.mark.mpi(ranks=[2, 3])
def test_the_way_changes_no_bit():
    """Of an array alone, in a list, in registered memory, reduced for one or in pieces."""
    with Communicator(world(), "shm") as comm:
        for name in NOISY:
            array = noise(np.random.default_rng(comm.rank), name, 50_001)
            total = comm.allreduce(array)
            bits = total.tobytes()
            registered = comm.empty(array.shape, array.dtype)
            registered[:] = array
            first, second = comm.allreduce_many([array[:77], array[77:]])
            reduced = comm.reduce(array, root=1)
            part = comm.reduce_scatter(array)
            assert comm.allreduce(registered).tobytes() == bits, name
            assert comm.allreduce(registered, out=registered).tobytes() == bits, name
            assert first.tobytes() + second.tobytes() == bits, name
            assert reduced is None or reduced.tobytes() == bits, name
            assert part.tobytes() == piece(total, comm.size, comm.rank).tobytes(), name
            reversed_twice = comm.allreduce(array[::-1])[::-1]
            assert reversed_twice.tobytes() == bits, name


@pytest.mark.mpi(ranks=[3, 4] if with_all() else 3)
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_what_more_than_two_ranks_try_changes_no_bit(name):
    """Each length is tried through the caches and past them, and then the faster of the two."""
    with Communicator(world(), "shm") as comm:
        for count in (20_001, 300_007):
            array = noise(np.random.default_rng(comm.rank), name, count)
            bits = comm.allreduce(array).tobytes()
            for i in range(9):
                again = array.copy()
                comm.allreduce(again, out=again)
                first, second = comm.allreduce_many([array[:5001], array[5001:]])
                assert again.tobytes() == bits, (count, i)
                assert first.tobytes() + second.tobytes() == bits, (count, i)
            assert comm.allgather_object(bits) == [bits] * comm.size


# ---------------------------------------------------------------------------------------- long


@pytest.mark.skipif(
    os.environ.get("MPISTRAT_TESTS_LARGE") != "1",
    reason="takes 10 GB of memory and 1 min; MPISTRAT_TESTS_LARGE=1 pytest -k more_bytes runs it",
)
@pytest.mark.mpi(ranks=2, timeout_s=240)
def test_more_bytes_than_fit_in_an_int():
    count = 2**31 + 11
    places = np.array([0, CHUNK - 1, CHUNK, 2**31 - CHUNK, 2**31 - 1, 2**31, count - 1])
    with Communicator(world(), "shm") as comm:
        array = np.zeros(count, np.uint8)
        array[places] = comm.rank + 1
        comm.allreduce(array, out=array, timeout=200)
        assert (array[places] == 3).all()
        array[places] += comm.rank
        comm.bcast(array, root=1, out=array, timeout=200)
        assert (array[places] == 4).all()
        assert np.count_nonzero(array) == places.size
        # All of it from one rank to the other.
        splits = [0, count if comm.rank == 0 else 0]
        there = comm.alltoall(array if comm.rank == 0 else array[:0], splits, timeout=200)
        assert there.size == (0 if comm.rank == 0 else count)
        assert there.size == 0 or (there[places] == 4).all()
        del there
        registered = comm.empty(count, np.uint8)
        registered[:] = array
        comm.allreduce(registered, "max", out=registered, timeout=200)
        assert (registered[places] == 4).all()
        assert np.count_nonzero(registered) == places.size
