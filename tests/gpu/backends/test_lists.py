"""allreduce_many of arrays on a GPU: dtypes, shapes, buckets, memory for results."""

import numpy as np
import pytest

from helpers.gpu_ranks import CARRIERS, communicator_on_gpus
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
