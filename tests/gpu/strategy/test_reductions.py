"""Values of replicas on GPUs are combined to the bits that they give on CPUs, and stay there."""

import ml_dtypes
import numpy as np
import pytest

import mpistrat
from helpers.gpu.devices import needs_gpus
from helpers.gpu.strategies import at_places, gpus_of, same_on_gpus
from mpistrat.errors import UsageError
from mpistrat.strategy.values import DistributedValues
from mpistrat.testing.sets import takes_long, with_all

RANKS = [1, 2, 3] if with_all() else [1, 2]
DTYPES = ["float32", "int32", ml_dtypes.bfloat16]
if with_all():
    DTYPES += ["float64", "bool", "float16", "complex64"]

pytestmark = pytest.mark.mpi(ranks=RANKS, timeout_s=240)  # kernels are compiled when first used


@takes_long()
@at_places
def test_reduce(place):
    def program(bench):
        found = []
        for dtype in map(np.dtype, DTYPES):

            def value(dtype=dtype):
                made = bench.sample((3, 5), bench.replica(), dtype)
                bench.check(made)
                return made

            values = bench.strategy.run(value)
            for op in ("SUM", "MEAN"):
                found.append(bench.strategy.reduce(op, values))
                if dtype.kind != "b":
                    found += [bench.strategy.reduce(op, values, axis=axis) for axis in (0, [0, 1])]
        return found

    same_on_gpus(place, program)


@at_places
def test_nests_are_reduced_in_few_messages(place):
    def program(bench):
        def value():
            one = bench.sample((4,), bench.replica(), np.float32)
            return {"a": one, "b": [one * 2, bench.sample((2, 2), 7)], "c": 1.5}

        values = bench.strategy.run(value)
        if bench.strategy.extended.num_local_replicas > 1:
            values["c"] = DistributedValues([1.5] * bench.strategy.extended.num_local_replicas)
        return bench.strategy.reduce("SUM", values)

    same_on_gpus(place, program)


@at_places
def test_gather_of_unequal_lengths(place):
    def gathered(bench, axis):
        def value():
            shape = (2, 3 + bench.replica()) if axis else (bench.replica(), 3)
            return bench.sample(shape, bench.replica())

        return bench.strategy.gather(bench.strategy.run(value), axis)

    same_on_gpus(place, lambda bench: [gathered(bench, axis) for axis in (0, 1)])


@at_places
def test_collectives_in_replicas(place):
    def program(bench):
        def step():
            context = mpistrat.get_replica_context()
            mine = bench.sample((6,), bench.replica())
            total, mean = context.all_reduce("SUM", mine), context.all_reduce("MEAN", [mine, mine])
            rows = context.all_gather({"x": mine[: 1 + bench.replica()]}, 0)
            bench.check(mine, total, *mean, rows["x"])
            total += 1  # each replica has its own
            return total, mean, rows

        def merged(strategy, value):
            return strategy.extended.reduce_to("MEAN", value, value)

        def by_merge():
            mine = bench.sample((3,), bench.replica())
            return mpistrat.get_replica_context().merge_call(merged, args=(mine,))

        local = bench.strategy.experimental_local_results
        return local(bench.strategy.run(step)), local(bench.strategy.run(by_merge))

    same_on_gpus(place, program)


@pytest.mark.parametrize(
    "make",
    [
        mpistrat.ReductionToOneDevice,
        mpistrat.HierarchicalCopyAllReduce,
        mpistrat.NcclAllReduce,
        lambda: mpistrat.ReductionToOneDevice(
            accumulation_fn=lambda arrays: sum(arrays[1:], arrays[0])
        ),
    ],
)
def test_cross_device_ops(make):
    def program(bench):
        values = bench.strategy.run(lambda: bench.sample((3,), bench.replica()))
        copies = bench.strategy.extended.broadcast_to(bench.sample((2,), 1), values)
        return bench.strategy.reduce("MEAN", values), copies.values

    same_on_gpus("two", program, lambda devices: mpistrat.MirroredStrategy(devices, make()))


@pytest.mark.parametrize("place", ["own", "two"])
def test_replicas_may_use_streams_of_their_own(place):
    with mpistrat.MirroredStrategy(gpus_of(place)) as strategy:
        cupy = needs_gpus(1)

        def step():
            context = mpistrat.get_replica_context()
            mine = cupy.zeros(4000)
            cupy.cuda.get_current_stream().synchronize()
            with cupy.cuda.Stream(non_blocking=True) as own:
                for _ in range(30):
                    mine += 1
                total = context.all_reduce("SUM", mine)
                total += mine
                own.synchronize()
            return total

        wanted = 30 * (strategy.num_replicas_in_sync + 1)
        for total in strategy.experimental_local_results(strategy.run(step)):
            assert (total.get() == wanted).all()


@pytest.mark.parametrize("place", ["own", "two"])
def test_memory_that_one_rank_lacks_is_an_error_on_all(place):
    with mpistrat.MirroredStrategy(gpus_of(place)) as strategy:
        cupy = needs_gpus(1)
        pool, is_first = cupy.get_default_memory_pool(), strategy.communicator.rank == 0
        values = strategy.run(lambda: cupy.ones(3))
        if is_first:
            pool.free_all_blocks()
            pool.set_limit(size=1 << 16)
        value = DistributedValues([np.ones(1 << 20)] * strategy.extended.num_local_replicas)
        try:
            with pytest.raises(mpistrat.errors.BackendUnavailableError, match="out of memory"):
                strategy.reduce("SUM", value)
        finally:
            pool.set_limit(size=0)
        assert strategy.reduce("MEAN", values).tolist() == [1.0] * 3


@at_places
def test_what_does_not_fit_is_refused_on_all_ranks(place):
    with mpistrat.MirroredStrategy(gpus_of(place)) as strategy:
        cupy = needs_gpus(1)
        first = strategy.communicator.rank == 0

        def unequal():
            index = mpistrat.get_replica_context().replica_id_in_sync_group
            return cupy.ones(1 + index)

        if strategy.num_replicas_in_sync > 1:
            with pytest.raises((UsageError, mpistrat.errors.MismatchError)):
                strategy.reduce("SUM", strategy.run(unequal))
        with pytest.raises((UsageError, mpistrat.errors.MismatchError)):
            strategy.gather(strategy.run(lambda: cupy.ones(3)), 1 if first else 5)
        # The strategy can still be used.
        assert float(strategy.reduce("SUM", strategy.run(lambda: cupy.ones(())))) == (
            strategy.num_replicas_in_sync
        )
