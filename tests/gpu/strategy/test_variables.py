"""Variables of strategies on GPUs: a copy on each replica's GPU, the CPU's bits."""

import copy

import numpy as np
import pytest

import mpistrat
from helpers.gpu.one_gpu_conformance import nothing_is_carried
from helpers.gpu.strategies import PLACES, at_places, gpus_of, same_on_gpus
from mpistrat import IndexedSlices, Variable, VariableAggregation, VariableSynchronization
from mpistrat.collectives.arrays import on_device
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.mpi(ranks=[1, 2], timeout_s=240)  # kernels are compiled when first used

AGGREGATIONS = [
    VariableAggregation.SUM,
    VariableAggregation.MEAN,
    VariableAggregation.ONLY_FIRST_REPLICA,
]
SCATTERS = ["add", "sub", "mul", "div", "max", "min", "update"]


@at_places
def test_each_replica_has_a_copy_on_its_gpu(place):
    with mpistrat.MirroredStrategy(gpus_of(place)) as strategy:
        rank = strategy.communicator.rank
        with strategy.scope():
            v = Variable(np.arange(4.0) + rank)  # rank 0's counts
        gpus = PLACES[place](rank)
        assert [on_device.index_of(one.value()) for one in v.values] == gpus
        assert all(one.numpy().tolist() == [0, 1, 2, 3] for one in v.values)
        assert on_device.index_of(v.value()) == gpus[0]
        # It is the memory itself, which follows assignments.
        seen = strategy.experimental_local_results(strategy.run(v.value))
        assert [one.data.ptr for one in seen] == [one.value().data.ptr for one in v.values]
        v.assign_add(np.ones(4))
        assert [float(one[0]) for one in seen] == [1.0] * len(gpus)


def test_functions_of_cupy_take_variables_where_they_are():
    import cupy

    with mpistrat.MirroredStrategy(gpus_of("shared")) as strategy, strategy.scope():
        v = Variable(np.arange(4.0))
        on_read = VariableSynchronization.ON_READ
        mean = VariableAggregation.MEAN
        w = Variable(np.arange(4.0), synchronization=on_read, aggregation=mean)
        for one in (v, v.values[0], mpistrat.Mirrored([v.value()]), w):
            assert cupy.asarray(one).device == v.value().device
            assert cupy.exp2(one).tolist() == [1, 2, 4, 8]
            assert cupy.where(v.value() > 1, one, 0).tolist() == [0, 0, 2, 3]
            assert (cupy.ones(4) + one).tolist() == [1, 2, 3, 4]
        for one in (v, v.values[0], w):  # copies, on the GPU
            with nothing_is_carried():
                got = cupy.asarray(one)
            got *= 2
            assert one.numpy().tolist() == [0, 1, 2, 3]
    with mpistrat.MirroredStrategy(["CPU:0"]) as strategy, strategy.scope():
        v = Variable(np.arange(4.0))
        for one in (v, mpistrat.Mirrored([v.value()])):
            assert cupy.asarray(one).tolist() == [0, 1, 2, 3]
            with pytest.raises(TypeError, match="Unsupported type"):
                cupy.exp2(one)


@at_places
def test_assignments_by_replicas_and_across_them(place):
    def program(bench):
        strategy, found = bench.strategy, []
        with strategy.scope():
            made = [Variable(np.zeros(3), aggregation=one) for one in AGGREGATIONS]
            counter = Variable(np.int32(0), aggregation=VariableAggregation.SUM)

        def step():
            for v in made:
                v.assign_add(bench.sample((3,), bench.replica()))
            counter.assign_add(bench.replica())
            for v in made:
                bench.check(v.value(), v.read_value())
            return [v.value() * 2 for v in made]

        found.append(strategy.experimental_local_results(strategy.run(step)))
        for v in made:
            v.assign(v.value() / 2)
            v.assign_sub(bench.sample((3,), 5))
            strategy.extended.update(
                v, lambda one, by: one.assign_add(by), (bench.array(1.0 * np.ones(3)),)
            )
            found += [v.numpy(), v * 2, 1 - v, v[1:], np.sqrt(np.abs(v))]
        return found, counter.numpy()

    same_on_gpus(place, program)


@at_places
def test_copies_that_are_combined_when_read(place):
    def one(bench, aggregation):
        on_read = VariableSynchronization.ON_READ
        with bench.strategy.scope():
            v = Variable(np.zeros(2), synchronization=on_read, aggregation=aggregation)

        def step():
            v.assign_add(bench.sample((2,), bench.replica()))
            bench.check(v.value())
            return v.read_value()

        local = bench.strategy.experimental_local_results(bench.strategy.run(step))
        before = v.read_value()
        v.assign(bench.array([4.0, 8.0]))
        return local, before, v.numpy(), [held.numpy() for held in v.values]

    same_on_gpus(place, lambda bench: [one(bench, kind) for kind in AGGREGATIONS])


@at_places
def test_rows_are_changed(place):
    def changed(bench, method):
        with bench.strategy.scope():
            v = Variable(np.arange(10.0).reshape(5, 2) + 1)
        for indices in ([4, 1, 4], bench.array([0, 1, 0])):
            slices = IndexedSlices(bench.sample((3, 2), 3) + 0.5, indices)
            getattr(v, f"scatter_{method}")(slices)
        rows = bench.strategy.run(lambda: v.sparse_read([[1], [4]]))
        return v.numpy(), bench.strategy.experimental_local_results(rows), slices.summed().values

    same_on_gpus(place, lambda bench: [changed(bench, method) for method in SCATTERS])


@at_places
def test_copies_of_a_strategy_and_of_variables(place):
    def program(bench):
        with bench.strategy.scope():
            v = Variable(np.ones(3))
        other = copy.deepcopy(v)
        other.assign_add(bench.array(np.ones(3)))
        return v.numpy(), other.numpy()

    same_on_gpus(place, program)


@takes_long()
def test_one_device():
    with mpistrat.OneDeviceStrategy(gpus_of("shared")[0]) as strategy:
        with strategy.scope():
            v = Variable(np.arange(3.0))

        def step(batch):
            v.assign_add(batch)
            return v.value() * 2

        data = strategy.experimental_distribute_dataset([np.ones(3), np.ones(3)])
        results = [strategy.run(step, args=(batch,)) for batch in data]
        assert all(on_device.is_elsewhere(one) for one in results)
        assert results[-1].tolist() == [4.0, 6.0, 8.0]
        assert strategy.reduce("MEAN", results[-1], axis=0).tolist() == 6.0


def test_ranks_with_and_without_gpus_combine_on_the_host():
    from mpi4py import MPI

    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    gpu = gpus_of("shared")[0]
    devices = ["CPU:0", gpu] if rank else [gpu, "CPU:0"]
    with mpistrat.MirroredStrategy(devices) as strategy:
        with strategy.scope():
            v = Variable(np.zeros(2), aggregation=VariableAggregation.SUM)

        def step():
            context = mpistrat.get_replica_context()
            total = context.all_reduce("SUM", v.value() + 1)
            v.assign_add(v.value() + 1)
            assert on_device.is_elsewhere(total) == (context.gpu is not None)
            return total

        totals = strategy.experimental_local_results(strategy.run(step))
        assert [one.tolist() for one in totals] == [[2.0 * size] * 2] * 2
        assert v.numpy().tolist() == [2.0 * size] * 2
        assert (strategy.extended.placement.gpu is None) == (size > 1)
