"""Variables that the ranks of a node have once: what is assigned, added and scattered to them."""

import copy

import numpy as np
import pytest

from helpers.mistakes import refused
from helpers.strategy.central_storage import (
    FIRST,
    MEAN,
    SUM,
    communicator,
    made,
    replica_id,
    tried,
)
from mpistrat import (
    CentralStorageStrategy,
    IndexedSlices,
    ShardedVariable,
    VariableSynchronization,
)
from mpistrat.errors import UsageError
from mpistrat.optimizers import SGD
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.mpi(ranks=[2, 3])

# Some elements less than ranks; a short value; one of which each rank gets a share only.
SHAPES = [(), (2,), (5, 3), (0, 4), (3, 200_001)]


@takes_long()
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("devices", [1, 2])
def test_assignments_of_any_shape(shape, devices):
    with CentralStorageStrategy([f"CPU:{i}" for i in range(devices)]) as strategy:
        count = strategy.num_replicas_in_sync
        start = np.arange(float(np.prod(shape))).reshape(shape)
        total = count * (count + 1) / 2
        for aggregation, one in ((SUM, total), (MEAN, total / count), (FIRST, 1.0)):
            variable = made(strategy, start, aggregation=aggregation)

            def step(v=variable):
                delta = np.full(shape, replica_id() + 1.0)
                v.assign_add(delta)
                return v.assign_sub(delta * 3)

            assert strategy.run(step) is variable
            np.testing.assert_allclose(variable.numpy(), start - 2 * one, rtol=1e-15)
            variable.assign_add(np.full(shape, 0.5))
            np.testing.assert_allclose(variable.numpy(), start - 2 * one + 0.5, rtol=1e-15)
            strategy.run(lambda v=variable: v.assign(np.full(shape, replica_id() + 1.0)))
            np.testing.assert_allclose(variable.numpy(), np.full(shape, one), rtol=1e-15)


def test_ranks_with_unequal_numbers_of_replicas():
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    with CentralStorageStrategy([f"CPU:{i}" for i in range(rank + 1)]) as strategy:
        count = strategy.num_replicas_in_sync
        for size in (3, 900_001):
            variable = made(strategy, np.zeros(size), aggregation=MEAN)
            strategy.run(lambda v=variable: v.assign(np.full(v.shape, 1.0 * replica_id())))
            np.testing.assert_allclose(variable.numpy(), (count - 1) / 2, rtol=1e-15)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int32", "uint8", "bool"])
def test_other_types(name):
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, name, name))
    with CentralStorageStrategy() as strategy:
        count = strategy.num_replicas_in_sync
        for size in (5, 5_000_001):
            variable = made(strategy, np.zeros(size, dtype), aggregation=SUM)
            strategy.run(lambda v=variable: v.assign_add(np.ones(v.shape, v.dtype)))
            assert variable.dtype == dtype
            assert (variable.value() == np.ones(1, dtype) * (1 if name == "bool" else count)).all()


def test_values_that_are_the_variable_itself():
    with CentralStorageStrategy() as strategy:
        count = strategy.num_replicas_in_sync
        for size in (4, 700_001):
            start = np.arange(float(size))
            variable = made(strategy, start, aggregation=SUM)
            other = made(strategy, start * 10, aggregation=SUM)
            variable.assign(variable.value()[::-1])
            np.testing.assert_array_equal(variable.numpy(), start[::-1])
            strategy.run(lambda v=variable: v.assign(v.value()[::-1]))
            np.testing.assert_array_equal(variable.numpy(), start * count)
            strategy.run(lambda v=variable, w=other: v.assign_add(w))
            variable.assign_add(variable)
            np.testing.assert_array_equal(variable.numpy(), start * 22 * count)


def test_update_is_done_once_and_its_result_is_everywhere():
    with CentralStorageStrategy() as strategy:
        comm = communicator(strategy)
        variable, other = made(strategy, np.ones(3)), made(strategy, 5.0)
        calls = []

        def change(v, delta, *, scale):
            calls.append(comm.rank)
            v.live()[...] += delta * scale
            strategy.extended.update(other, lambda o: o.assign_add(1.0))
            return {"v": v, "others": [other, 3], "array": v.value() + 0.5}

        result = strategy.extended.update(variable, change, (2.0,), {"scale": 2.0})
        assert calls == ([0] if comm.rank == 0 else [])
        assert result["v"] is variable
        assert result["others"] == [other, 3]
        np.testing.assert_array_equal(result["array"], np.full(3, 5.5))
        np.testing.assert_array_equal(variable.numpy(), np.full(3, 5.0))
        assert float(other) == 6.0
        assert strategy.extended.update(variable, lambda v: v, group=False) == (variable,)


def test_on_read_variables_have_a_copy_on_each_replica():
    with CentralStorageStrategy(["CPU:0", "CPU:1"]) as strategy:
        on_read = VariableSynchronization.ON_READ
        counter = made(strategy, 0, synchronization=on_read, aggregation=SUM)
        strategy.run(lambda: counter.assign_add(replica_id()) and None)
        mine = [int(one) for one in strategy.experimental_local_results(counter)]
        assert mine == [2 * communicator(strategy).rank, 2 * communicator(strategy).rank + 1]
        assert int(counter) == sum(range(strategy.num_replicas_in_sync))
        central = made(strategy, 0)
        central.assign(counter)
        assert int(central) == int(counter)


def test_scattered_rows():
    """Rank 0's rows count; in replicas there is no rule for them."""
    with CentralStorageStrategy() as strategy:
        rank = communicator(strategy).rank
        table = made(strategy, np.zeros((5, 2)))
        slices = IndexedSlices(np.full((3, 2), 1.0 + rank), [4, 0, 4], (5, 2))
        assert table.scatter_add(slices) is table
        np.testing.assert_array_equal(table.numpy()[:, 0], [1, 0, 0, 0, 2])
        strategy.extended.update(table, lambda one: one.scatter_sub(slices))
        assert not table.value().any()
        np.testing.assert_array_equal(table.sparse_read([4]), np.zeros((1, 2)))
        with tried() as (other, variable, _):
            with refused(UsageError, "scatter_mul to central variable .*gather the rows"):
                other.run(lambda: variable.scatter_mul(IndexedSlices(np.ones(1), [0])))
            with refused(UsageError, "no rows of it"):
                variable.scatter_max(IndexedSlices(np.ones(1), [9]))
            np.testing.assert_array_equal(variable.numpy(), np.arange(4.0))


def test_a_variable_in_parts():
    with CentralStorageStrategy() as strategy:
        whole = ShardedVariable(
            [made(strategy, np.zeros((3, 2))), made(strategy, np.ones((2, 2)))]
        )
        whole.assign_add(np.arange(10.0).reshape(5, 2))
        rows = IndexedSlices(np.ones((2, 2)), [4, 0])
        strategy.run(lambda: SGD(1.0).apply_gradients([(rows, whole)]))
        expected = np.arange(10.0).reshape(5, 2)
        expected[3:] += 1
        expected[[0, 4]] -= strategy.num_replicas_in_sync
        np.testing.assert_array_equal(whole.numpy(), expected)
        again = copy.deepcopy(whole)
        again.assign(expected * 2)
        np.testing.assert_array_equal(whole.numpy(), expected)


def test_deep_copies_are_variables_of_their_own():
    with CentralStorageStrategy() as strategy:
        variable = made(strategy, np.ones(3), aggregation=SUM, name="w")
        other = copy.deepcopy({"w": variable})["w"]
        strategy.run(lambda: other.assign_add(np.ones(3)))
        np.testing.assert_array_equal(variable.numpy(), np.ones(3))
        np.testing.assert_array_equal(
            other.numpy(), np.full(3, 1.0 + strategy.num_replicas_in_sync)
        )
        assert (other.name, other.aggregation) == ("w:0", SUM)
