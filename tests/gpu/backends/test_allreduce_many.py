"""allreduce_many of arrays on a GPU: dtypes, shapes, buckets, memory for results."""

import numpy as np
import pytest

from helpers.gpu.devices import needs_gpus
from helpers.gpu.ranks import CARRIERS, communicator_on_gpus, fill_late
from mpistrat import built_in_sizes
from mpistrat.collectives.backends.gpu.carriers import peer_memory
from mpistrat.collectives.operations import allreduce_many_on_gpu
from mpistrat.testing.backends.cases import setting
from mpistrat.testing.backends.samples import assert_same, expected_reduction, sample
from mpistrat.testing.sets import takes_long, with_all

LISTS = {
    "mixed": [
        *(
            ("float32", (5,)),
            ("int8", (3, 3)),
            ("float64", ()),
            ("float32", (2, 0)),
            ("bool", (7,)),
        ),
        *(("complex64", (3,)), ("float32", (1,)), ("int8", ()), ("int64", (11, 2))),
    ],
    "only empty": [("float32", (0,)), ("int8", (2, 0))],
    "ragged": [("float32", (n,)) for n in (1, 7, 64, 0, 3, 129)],
    "nothing": [],
}


def made(form, rank):
    return [sample(dtype, shape, rank) for dtype, shape in form]


@takes_long()
@pytest.mark.mpi(ranks=[2, 3] if with_all() else 3, timeout_s=40)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_lists_of_any_dtypes_and_shapes(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy):
        for name, form in LISTS.items():
            everyone = [made(form, rank) for rank in range(comm.size)]
            for op in ("sum", "mean"):
                wanted = [expected_reduction(op, one) for one in zip(*everyone, strict=True)]
                for nbytes in (None, 1, 40, 1 << 20) if with_all() else (None, 40):
                    mine = [cupy.asarray(one) for one in everyone[comm.rank]]
                    found = comm.allreduce_many(mine, op, bucket_bytes=nbytes)
                    assert len(found) == len(wanted)
                    for one, want in zip(found, wanted, strict=True):
                        assert isinstance(one, cupy.ndarray)
                        assert_same(one.get(), want, f"{op} of {name}, buckets of {nbytes}")
                    for one, want in zip(mine, everyone[comm.rank], strict=True):
                        assert_same(one.get(), want, "the input afterwards")


@pytest.mark.mpi(ranks=[2, 3] if with_all() else 3, timeout_s=40)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_results_go_where_they_are_wanted(carrier):
    with communicator_on_gpus(carrier) as (comm, cupy):
        form = LISTS["ragged"]
        everyone = [made(form, rank) for rank in range(comm.size)]
        wanted = [expected_reduction("sum", one) for one in zip(*everyone, strict=True)]
        mine = [cupy.asarray(one) for one in everyone[comm.rank]]
        apart = [cupy.zeros((one.size, 2), one.dtype)[:, 1] for one in mine]  # not contiguous
        for outs in (apart, mine):
            found = comm.allreduce_many(mine, out=outs)
            assert all(one is out for one, out in zip(found, outs, strict=True))
            for one, want in zip(outs, wanted, strict=True):
                assert_same(np.ascontiguousarray(one.get()), want, "ragged")


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=30)
def test_arrays_in_other_orders_and_steps():
    with communicator_on_gpus("peer_memory") as (comm, cupy):
        everyone = [
            [sample("float32", (6, 4), rank).T, sample("float32", (9,), rank)[::-2]]
            for rank in range(comm.size)
        ]
        wanted = [expected_reduction("sum", one) for one in zip(*everyone, strict=True)]
        rows, line = (cupy.asarray(sample("float32", s, comm.rank)) for s in ((6, 4), (9,)))
        for one, want in zip(comm.allreduce_many([rows.T, line[::-2]]), wanted, strict=True):
            assert_same(one.get(), want, "views")


def in_one_piece(cupy, parts):
    """Return copies of flat arrays that lie one after the other."""
    block = cupy.concatenate([cupy.asarray(one) for one in parts])
    ends = np.cumsum([one.size for one in parts])
    return [block[end - one.size : end] for end, one in zip(ends, parts, strict=True)]


@pytest.mark.mpi(ranks=2, timeout_s=40)
@pytest.mark.parametrize("whole_ranks", [(), (1,), (0, 1)])
def test_lists_are_packed_into_mapped_memory(whole_ranks):
    """Nothing is copied there once more, unless all ranks' arrays lie in one piece anyway."""
    with (
        communicator_on_gpus("peer_memory") as (comm, cupy),
        pytest.MonkeyPatch.context() as patch,
    ):
        form = LISTS["ragged"]
        everyone = [made(form, rank) for rank in range(comm.size)]
        wanted = [expected_reduction("sum", one) for one in zip(*everyone, strict=True)]
        own = everyone[comm.rank]
        is_whole = comm.rank in whole_ranks
        mine = in_one_piece(cupy, own) if is_whole else [cupy.asarray(one) for one in own]
        copied = []
        copy = peer_memory._copy_bytes
        patch.setattr(peer_memory, "_copy_bytes", lambda *to: (copied.append(to[2]), copy(*to)))
        for turn in range(3):  # the first one opens the carrier
            copied.clear()
            outs = [cupy.empty_like(one) for one in mine] if turn == 1 else None
            found = comm.allreduce_many(mine, out=outs)
            for one, want in zip(found, wanted, strict=True):
                assert_same(one.get(), want, f"turn {turn}")
            if turn:
                assert bool(sum(copied)) == bool(whole_ranks)


@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
def test_some_buckets_are_longer_than_a_slot_of_mapped_memory():
    with (
        setting("GPU_BUFFER_BYTES", 256),
        setting("GPU_MAPPED_BYTES", 256),
        communicator_on_gpus("peer_memory") as (comm, cupy),
    ):
        form = [("float32", (n,)) for n in (64, 1, 65, 300, 63, 7, 200)]
        for turn in range(3):
            everyone = [made(form, rank + turn) for rank in range(comm.size)]
            wanted = [expected_reduction("sum", one) for one in zip(*everyone, strict=True)]
            mine = [cupy.asarray(one) for one in everyone[comm.rank]]
            found = comm.allreduce_many(mine, bucket_bytes=256 + 4 * turn)
            single = comm.allreduce(mine[3])  # windows take slots in between
            for one, want in zip([*found, single], [*wanted, wanted[3]], strict=True):
                assert_same(one.get(), want, f"turn {turn}")


@pytest.mark.mpi(ranks=2, timeout_s=40)
def test_results_that_are_taken_late_from_mapped_memory_are_not_overwritten():
    """There are two slots, so the third call uses the first one's, on a stream of its own."""
    given = allreduce_many_on_gpu._given

    def late(*arguments):
        for _ in range(5):  # longer than two calls take
            fill_late(slow, 0)
        return given(*arguments)

    with (
        communicator_on_gpus("peer_memory") as (comm, cupy),
        pytest.MonkeyPatch.context() as patch,
    ):
        slow = cupy.empty(1, np.float32)
        patch.setattr(allreduce_many_on_gpu, "_given", late)
        kept = []
        for turn in range(6):
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                mine = [cupy.full(n, turn + comm.rank, np.float32) for n in (9000, 7000)]
                kept.append((stream, comm.allreduce_many(mine)))
        for turn, (stream, found) in enumerate(kept):
            with stream:
                assert all((one.get() == 2 * turn + 1).all() for one in found), turn


@pytest.mark.mpi(ranks=2, timeout_s=60)
@pytest.mark.parametrize("movers", [(0, 1), (1,)])
def test_lists_on_other_gpus_use_the_mapped_memory_of_these(movers):
    """One GPU has shorter slots than the other, and both are used in turn."""
    needs_gpus(2)
    with (
        setting("GPU_BUFFER_BYTES", 4096),
        setting("GPU_MAPPED_BYTES", 1 << 20),
        communicator_on_gpus("peer_memory", 0) as (comm, cupy),
        pytest.MonkeyPatch.context() as patch,
    ):
        for turn in range(6):
            device = turn // 3 % 2 if comm.rank in movers else 0
            with cupy.cuda.Device(device):
                mine = [cupy.full(n, turn + comm.rank, np.float32) for n in (9000, 1, 700)]
                for found in comm.allreduce_many(mine):
                    assert (found.get() == 2 * turn + 1).all(), turn
            patch.setattr(
                built_in_sizes, "GPU_MAPPED_BYTES", 4096
            )  # of GPU 1, which is opened next
