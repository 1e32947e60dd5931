"""Arrays that are longer than the buffers, whose windows end anywhere."""

import contextlib

import numpy as np
import pytest

from helpers.gpu.ranks import CARRIERS, communicator_on_gpus
from mpistrat.collectives.backends.gpu.carriers import peer_memory, staged
from mpistrat.testing.backends.cases import setting
from mpistrat.testing.backends.samples import assert_same, expected_reduction, get_dtype, sample
from mpistrat.testing.sets import takes_long, with_all

BUFFER_BYTES = 256
DTYPES = ("int8", "float32", "complex128", *(("bool", "bfloat16", "int64") if with_all() else ()))


@contextlib.contextmanager
def short_windows():
    """Let every array be a long one, in windows of BUFFER_BYTES."""
    with (
        setting("GPU_BUFFER_BYTES", BUFFER_BYTES),
        setting("GPU_MAPPED_BYTES", BUFFER_BYTES),
        setting("GPU_SHORT_BYTES", 0),
    ):
        yield


def length(dtype):
    """Return a number of elements for several windows, of 16 bytes in complex128 only."""
    return 4 * BUFFER_BYTES // get_dtype(dtype).itemsize + 3


def count_windows(patch):
    """Return a list to which every carrier adds the number of windows of a transfer."""
    counts = []
    for module in (staged, peer_memory):
        cut = module.windows

        def counted(*arguments, cut=cut):
            found = list(cut(*arguments))
            counts.append(len(found))
            return iter(found)

        patch.setattr(module, "windows", counted)
    return counts


@pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_every_operation_in_windows_that_end_anywhere(carrier, dtype):
    with short_windows(), pytest.MonkeyPatch.context() as patch:
        counts = count_windows(patch)
        with communicator_on_gpus(carrier) as (comm, cupy):
            n, rank, last = comm.size, comm.rank, comm.size - 1
            count = length(dtype)
            splits = [count - 5 * last, *[5] * last]
            same = [sample(dtype, (count,), r) for r in range(n)]
            ragged = [sample(dtype, (count - 11 * r,), r) for r in range(n)]
            mine = cupy.asarray(same[rank])
            pieces = [np.array_split(one, n) for one in same]
            blocks = [np.split(one, np.cumsum(splits)[:-1])[rank] for one in same]
            total = expected_reduction("sum", same)
            share = comm.scatter(mine if rank == last else None, last)
            wanted = {
                "allreduce": (comm.allreduce(mine), total),
                "reduce": (comm.reduce(mine, root=last), total if rank == last else None),
                "reduce_scatter": (comm.reduce_scatter(mine), np.array_split(total, n)[rank]),
                "bcast": (comm.bcast(mine, last), same[last]),
                "allgather": (
                    comm.allgather(cupy.asarray(ragged[rank])),
                    np.concatenate(ragged),
                ),
                "gather": (
                    comm.gather(cupy.asarray(ragged[rank]), last),
                    np.concatenate(ragged) if rank == last else None,
                ),
                "scatter": (share, pieces[last][rank]),
                "alltoall": (comm.alltoall(mine, splits), np.concatenate(blocks)),
                "in place": (comm.allreduce(mine, out=mine), total),
            }
            for name, (found, want) in wanted.items():
                assert (found is None) == (want is None), name
                if want is not None:
                    assert_same(found.get(), want, name)
        if carrier != "nccl":
            assert len(counts) >= len(wanted)
            assert min(counts) > 2, "some operation did not need several windows"


@takes_long()
@pytest.mark.mpi(ranks=4, timeout_s=60)
@pytest.mark.parametrize("carrier", ["staged", "peer_memory"])
def test_more_ranks_than_reduce_whole_windows(carrier):
    with short_windows(), communicator_on_gpus(carrier) as (comm, cupy):
        for dtype in DTYPES:
            for count in (1, 15, 65, length(dtype)):
                everyone = [sample(dtype, (count,), r) for r in range(comm.size)]
                want = expected_reduction("sum", everyone)
                mine = cupy.asarray(everyone[comm.rank])
                for _ in range(3):  # the slots are used again
                    assert_same(comm.allreduce(mine).get(), want, f"{count} of {dtype}")
