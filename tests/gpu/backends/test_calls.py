"""Calls with arrays on GPUs: order on streams, lists, windows, and what is refused."""

from contextlib import contextmanager

import numpy as np
import pytest

from helpers.gpus import needs_gpus
from mpistrat.collectives import Communicator
from mpistrat.errors import ArgumentTypeError, BackendUnavailableError, MismatchError, UsageError
from mpistrat.testing.backends.cases import setting

CARRIERS = ["staged", "peer_memory"]
ranks = pytest.mark.mpi(ranks=[2, 3], timeout_s=60)
carried = pytest.mark.parametrize("carrier", CARRIERS)


@contextmanager
def communicator(carrier):
    """Yield CuPy, and a communicator whose transfers go in many windows."""
    cupy = needs_gpus(1)
    with pytest.MonkeyPatch.context() as patch, setting("GPU_BUFFER_BYTES", 1024):
        patch.setenv("MPISTRAT_GPU_CARRIER", carrier)
        comm = Communicator()
        try:
            yield cupy, comm
        except BaseException as error:
            comm.health.break_off(error)  # the other ranks must not wait for this one
            raise
        finally:
            comm.close()


@ranks
@carried
def test_results_are_ready_on_the_stream_of_the_caller(carrier):
    with communicator(carrier) as (cupy, comm):
        for stream in (cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream.null):
            with stream:
                mine = cupy.zeros(100_000, np.float32)
                mine += comm.rank + 1  # queued just before
                total = comm.allreduce(mine)
                total *= 2
                found = total.get(stream=stream)
            np.testing.assert_array_equal(found, 2.0 * sum(range(1, comm.size + 1)))


@ranks
@carried
def test_every_operation_in_windows_that_end_anywhere(carrier):
    with communicator(carrier) as (cupy, comm):
        n, rank = comm.size, comm.rank
        everyone = [np.arange(5000 + 7 * r, dtype=np.float32) * (r + 1) for r in range(n)]
        mine = cupy.asarray(everyone[rank])
        np.testing.assert_array_equal(comm.allgather(mine).get(), np.concatenate(everyone))
        gathered = comm.gather(mine, root=n - 1)
        if rank == n - 1:
            np.testing.assert_array_equal(gathered.get(), np.concatenate(everyone))
        same = [one[:4999] for one in everyone]
        short = cupy.asarray(same[rank])
        want = np.sum(same, axis=0)
        np.testing.assert_array_equal(comm.allreduce(short).get(), want)
        pieces = np.array_split(want, n)
        np.testing.assert_array_equal(comm.reduce_scatter(short).get(), pieces[rank])
        total = comm.reduce(short, root=0)
        if rank == 0:
            np.testing.assert_array_equal(total.get(), want)
        np.testing.assert_array_equal(comm.bcast(short, root=n - 1).get(), same[n - 1])
        share = comm.scatter(short if rank == 0 else None)
        np.testing.assert_array_equal(share.get(), np.array_split(same[0], n)[rank])
        splits = [4999 - 10 * (n - 1)] + [10] * (n - 1)
        blocks = [np.split(one, np.cumsum(splits)[:-1])[rank] for one in same]
        swapped = comm.alltoall(short, splits)
        np.testing.assert_array_equal(swapped.get(), np.concatenate(blocks))


@ranks
@carried
def test_lists_of_mixed_dtypes_and_any_sizes(carrier):
    with communicator(carrier) as (cupy, comm):
        dtypes = ["float32", "float16", "int32"]
        shapes = [(k % 7, 3) for k in range(30)]
        sources = [
            cupy.full(shape, comm.rank + 1, dtypes[k % 3]) for k, shape in enumerate(shapes)
        ]
        want = sum(range(1, comm.size + 1))
        for nbytes in (None, 64):
            found = comm.allreduce_many(sources, bucket_bytes=nbytes)
            for total, source in zip(found, sources, strict=True):
                assert (total.shape, total.dtype) == (source.shape, source.dtype)
                assert (total.get() == want).all()
        outs = [cupy.empty_like(one) for one in sources]
        assert all(
            a is b for a, b in zip(comm.allreduce_many(sources, out=outs), outs, strict=True)
        )
        assert all((one.get() == want).all() for one in outs)
        assert comm.allreduce_many([]) == []


@ranks
@carried
def test_arrays_of_host_and_gpu_do_not_mix(carrier):
    with communicator(carrier) as (cupy, comm):
        mine = cupy.ones(3) if comm.rank == 0 else np.ones(3)
        with pytest.raises(MismatchError, match="memory=GPU"):
            comm.allreduce(mine)
        with pytest.raises(UsageError, match="arrays of GPU:0 and the host"):
            comm.allreduce_many([cupy.ones(2), np.ones(2)])
        with pytest.raises(ArgumentTypeError, match="out is a ndarray; expected an array of CuPy"):
            comm.allreduce(cupy.ones(2), out=np.ones(2))
        with pytest.raises(UsageError, match=r"out has shape \(3,\)"):
            comm.allreduce(cupy.ones(2), out=cupy.ones(3))
        assert comm.allreduce(cupy.ones(2)).get().tolist() == [comm.size] * 2


@ranks
def test_nccl_for_ranks_that_share_a_gpu_is_refused():
    with communicator("nccl") as (cupy, comm):
        with pytest.raises(BackendUnavailableError, match="ranks have 1 GPU"):
            comm.allreduce(cupy.ones(2))
        assert comm.allreduce(1) == comm.size  # it is still usable


@ranks
def test_gpus_may_change_from_call_to_call():
    needs_gpus(3)
    with communicator("auto") as (cupy, comm):
        for shift in (0, 1):
            with cupy.cuda.Device((comm.rank + shift) % 3):
                mine = cupy.full(1000, comm.rank + 1.0)
            total = comm.allreduce(mine)
            assert total.device == mine.device
            assert (total.get() == sum(range(1, comm.size + 1))).all()
