"""Thousands of mixed collectives: every answer is right, and nothing grows."""

import gc
from pathlib import Path

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.errors import ArgumentTypeError, MismatchError
from mpistrat.testing.backends.samples import get_dtype
from mpistrat.testing.sets import takes_long, with_all

# Fingerprints of the last 4096 kinds of calls are kept (checking/fingerprint.py): they fill up.
CALLS, WARM_UP = (100_000, 25_000) if with_all() else (5_000, 2_500)
MOST_BYTES = 100_000
GROWTH_BYTES = 2 << 20  # however many calls
DTYPES = ("bool", "int8", "uint16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Soak:
    """A random sequence of calls, the same on all ranks.

    All arrays are cut from `pattern`, plus the rank: numbers from 0 to 3, so that every total of
    two ranks is exact in every dtype, and every answer is a slice of an array that is known.
    """

    def __init__(self, comm):
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self.random = np.random.default_rng(7)
        pattern = np.arange(MOST_BYTES + 64) * 7 % 11 % 3
        self.patterns = {
            name: [(pattern + rank).astype(get_dtype(name)) for rank in range(self.size)]
            for name in DTYPES
        }
        self.totals = {
            ("sum", name): np.add(*arrays) for name, arrays in self.patterns.items()
        } | {("max", name): np.maximum(*arrays) for name, arrays in self.patterns.items()}
        self.calls = [getattr(self, name) for name in dir(type(self)) if name.startswith("call_")]

    def pick(self):
        """Choose a root, an op and all ranks' arrays; return them, and their total."""
        random = self.random
        name = DTYPES[random.integers(len(DTYPES))]
        itemsize = self.patterns[name][0].itemsize
        # As many short arrays as long ones; a sixteenth is empty.
        nbytes = int(MOST_BYTES ** random.random()) if random.random() < 15 / 16 else 0
        start, count = int(random.integers(64)), nbytes // itemsize
        part = slice(start, start + count)
        op = ("sum", "max")[random.integers(2)]
        arrays = [array[part] for array in self.patterns[name]]
        return int(random.integers(self.size)), op, arrays, self.totals[op, name][part]

    def run(self, calls):
        for i in range(calls):
            call = self.calls[self.random.integers(len(self.calls))]
            if not call():
                pytest.fail(f"call {i}, {call.__name__}: wrong answer")

    def pieces(self, array):
        return np.array_split(array, self.size)

    def call_allreduce(self):
        _, op, arrays, total = self.pick()
        return same(self.comm.allreduce(arrays[self.rank], op), total)

    def call_allreduce_in_place(self):
        _, op, arrays, total = self.pick()
        array = arrays[self.rank].copy()
        self.comm.allreduce(array, op, out=array)
        return same(array, total)

    def call_allreduce_many(self):
        _, op, arrays, total = self.pick()
        cut = total.size // 3
        first, second = self.comm.allreduce_many(
            [arrays[self.rank][:cut], arrays[self.rank][cut:]], op
        )
        return same(first, total[:cut]) and same(second, total[cut:])

    def call_iallreduce(self):
        _, op, arrays, total = self.pick()
        works = [self.comm.iallreduce(arrays[self.rank], op) for _ in range(3)]
        return all(same(work.wait(), total) for work in reversed(works))

    def call_reduce(self):
        root, op, arrays, total = self.pick()
        result = self.comm.reduce(arrays[self.rank], op, root)
        return same(result, total) if self.rank == root else result is None

    def call_reduce_scatter(self):
        _, op, arrays, total = self.pick()
        result = self.comm.reduce_scatter(arrays[self.rank], op)
        return same(result, self.pieces(total)[self.rank])

    def call_bcast(self):
        root, _, arrays, _ = self.pick()
        return same(self.comm.bcast(arrays[self.rank], root), arrays[root])

    def call_allgather(self):
        _, _, arrays, _ = self.pick()
        cut = arrays[0].size // 2  # a ragged one: the last rank has half as much
        arrays[-1] = arrays[-1][:cut]
        return same(self.comm.allgather(arrays[self.rank]), np.concatenate(arrays))

    def call_gather(self):
        root, _, arrays, _ = self.pick()
        result = self.comm.gather(arrays[self.rank], root)
        return same(result, np.concatenate(arrays)) if self.rank == root else result is None

    def call_scatter(self):
        root, _, arrays, _ = self.pick()
        result = self.comm.scatter(arrays[root] if self.rank == root else None, root)
        return same(result, self.pieces(arrays[root])[self.rank])

    def call_alltoall(self):
        _, _, arrays, _ = self.pick()
        splits = [part.size for part in self.pieces(arrays[0])]
        result = self.comm.alltoall(arrays[self.rank], splits)
        return same(result, np.concatenate([self.pieces(a)[self.rank] for a in arrays]))

    def call_even_rows(self):
        """Rows that the kernels exchange by themselves, half of the results in memory of ours."""
        root, op, arrays, total = self.pick()
        count = total.size // self.size * self.size
        arrays, mine = [array[:count] for array in arrays], arrays[self.rank][:count]
        here = slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)
        comm, whole = self.comm, np.concatenate(arrays)
        is_given = self.random.random() < 0.5
        out = np.empty_like(whole) if is_given else None
        gathered = comm.allgather(mine, out=out)
        collected = comm.gather(mine, root, out=None if out is None else np.empty_like(out))
        exchanged = comm.alltoall(mine, out=None if out is None else np.empty_like(mine))
        place = None if out is None else np.empty_like(mine[here])
        reduced = comm.reduce_scatter(mine, op, out=place)
        return (
            same(gathered, whole)
            and (collected is None if self.rank != root else same(collected, whole))
            and same(exchanged, np.concatenate([array[here] for array in arrays]))
            and same(reduced, total[:count][here])
            and (out is None or (gathered is out and reduced is place))
        )

    def call_that_one_rank_refuses(self):
        """Seldom, since all ranks word an error; they go on after it."""
        root, op, arrays, _ = self.pick()
        if self.random.random() < 0.9:
            return True
        methods = [self.comm.reduce, self.comm.bcast, self.comm.gather, self.comm.allreduce]
        method = methods[self.random.integers(len(methods))]
        arguments = (arrays[self.rank],)
        if self.rank == root:
            arguments = (np.array([op]),)  # a text
        try:
            method(*arguments)
        except (MismatchError, ArgumentTypeError) as error:
            return isinstance(error, ArgumentTypeError) == (self.rank == root)
        return False

    def call_that_differs(self):
        """Likewise."""
        _, _, arrays, _ = self.pick()
        if self.random.random() < 0.9:
            return True
        try:
            self.comm.bcast(np.ones((3, self.rank + 1), arrays[0].dtype))
        except MismatchError:
            return True
        return False

    def call_objects(self):
        root, _, arrays, _ = self.pick()
        name = arrays[0].dtype.name
        everyone = self.comm.allgather_object((self.rank, name))
        told = self.comm.bcast_object({"from": self.rank}, root)
        return everyone == [(r, name) for r in range(self.size)] and told == {"from": root}

    def call_barrier(self):
        return self.comm.barrier() is None

    def call_registered(self):
        """Seldom, since it costs a system call or two; the array of before is dropped."""
        if self.random.random() < 0.9:
            return True
        _, op, arrays, total = self.pick()
        array = self.comm.empty(total.shape, total.dtype)
        array[:] = arrays[self.rank]
        self.comm.allreduce(array, op, out=array)
        return same(array, total)

    def call_label(self):
        self.comm.label = (None, "a loss", "a gradient")[self.random.integers(3)]
        return True


def same(got, want):
    return got.dtype == want.dtype and got.shape == want.shape and bool((got == want).all())


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=300 if with_all() else 90)
@pytest.mark.parametrize("backend", ["shm"])
def test_thousands_of_calls(backend):
    from mpi4py import MPI

    with Communicator(MPI.COMM_WORLD, backend) as comm:
        soak = Soak(comm)
        soak.run(WARM_UP)
        gc.collect()
        before = resident_bytes()
        soak.run(CALLS - WARM_UP)
        gc.collect()
        grown = resident_bytes() - before
        assert grown < GROWTH_BYTES, f"grew by {grown >> 10} kB"
        print(f"grew by {grown >> 10} kB")
