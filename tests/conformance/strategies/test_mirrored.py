"""MirroredStrategy keeps the contract, on every layout."""

import numpy as np
import pytest

from mpistrat import MirroredStrategy, Variable, VariableAggregation, get_replica_context
from mpistrat.errors import UsageError
from mpistrat.testing.launching.rank import rank_from_environment
from mpistrat.testing.layouts import LAYOUTS, Layout
from mpistrat.testing.sets import takes_long, with_all
from mpistrat.testing.strategies.base import distribute, equal
from mpistrat.testing.strategies.conformance import AllAreasConformance
from mpistrat.testing.strategies.cross_device_ops import KINDS

LONG = pytest.param(LAYOUTS[3], marks=takes_long())
SOME = LAYOUTS if with_all() else [LAYOUTS[0], LONG, LAYOUTS[4]]


@pytest.mark.parametrize("layout", [Layout(1, 1), *SOME], ids=str)
class TestMirrored(AllAreasConformance):
    def strategy(self, layout: Layout) -> MirroredStrategy:
        return MirroredStrategy(layout.device_names)


@pytest.mark.mpi(ranks=[2, 3])
def test_ranks_may_have_different_numbers_of_devices() -> None:
    """Rank r has r + 1 replicas; the global ids count over the ranks."""
    rank = rank_from_environment()
    with MirroredStrategy([f"CPU:{i}" for i in range(rank + 1)]) as strategy:
        size = strategy.extended.communicator.size
        replicas = size * (size + 1) // 2
        assert strategy.num_replicas_in_sync == replicas
        ids = distribute(strategy, int)
        first = rank * (rank + 1) // 2
        assert ids.values == tuple(range(first, first + rank + 1))
        result = strategy.run(lambda x: np.array([x]), args=(ids,))
        equal(strategy.reduce("SUM", result, axis=None), np.array([sum(range(replicas))]))
        equal(strategy.gather(result, axis=0), np.arange(replicas))
        rows = np.arange(2 * replicas + 1)
        (step,) = strategy.experimental_distribute_dataset([rows])
        pieces = np.array_split(rows, replicas)[first : first + rank + 1]
        for one, piece in zip(strategy.experimental_local_results(step), pieces, strict=True):
            equal(one, piece)


@pytest.mark.mpi(ranks=3)
@pytest.mark.parametrize("devices", [1, 2])
def test_on_some_of_the_ranks(devices: int) -> None:
    """A communicator of ranks 2 and 0, in that order, makes a strategy; rank 1 has its own."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    with MirroredStrategy() as everyone:
        sub = world.Split(color=world.rank % 2, key=-world.rank)
        with MirroredStrategy([f"CPU:{i}" for i in range(devices)], comm=sub) as strategy:
            ranks = 1 if world.rank == 1 else 2
            place = 1 if world.rank == 0 else 0
            assert strategy.num_replicas_in_sync == ranks * devices
            ids = distribute(strategy, int)
            assert ids.values == tuple(range(place * devices, (place + 1) * devices))
            result = strategy.run(lambda x: np.array([x]), args=(ids,))
            equal(strategy.gather(result, axis=0), np.arange(ranks * devices))
            total = strategy.reduce("SUM", result, axis=0)
            equal(total, np.int64(sum(range(ranks * devices))))
            with strategy.scope():
                variable = Variable(float(world.rank))  # the first of the sub-communicator's
            equal(variable, np.float64(1 if world.rank == 1 else 2))
        equal(everyone.reduce("SUM", np.array([world.rank]), axis=None), np.array([3]))
        assert sub.allreduce(1) == ranks  # neither freed nor changed
        sub.Free()


@pytest.mark.parametrize("layout", [Layout(1, 1), *SOME], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_cross_device_ops_given_to_the_strategy(layout: Layout, kind: type) -> None:
    """All that a strategy combines goes through the object that it was given."""
    ops = kind()
    ids = np.arange(layout.replicas)
    with MirroredStrategy(layout.device_names, ops) as strategy:
        assert strategy.extended.cross_device_ops is ops
        value = distribute(strategy, lambda i: np.array([1.0, i]))
        total = np.array([layout.replicas, ids.sum()]) * 1.0
        equal(strategy.reduce("SUM", value, axis=None), total)
        np.testing.assert_allclose(strategy.reduce("MEAN", value, axis=0), total.mean() / len(ids))
        result = strategy.run(lambda x: get_replica_context().all_reduce("sum", [x]), (value,))
        for (one,) in strategy.experimental_local_results(result):
            equal(one, total)
        with strategy.scope():
            variable = Variable(np.zeros(2), aggregation=VariableAggregation.SUM)
        strategy.run(variable.assign_add, (value,))
        equal(variable, total)


def test_replicas_that_assign_to_different_variables_are_told() -> None:
    with MirroredStrategy(["CPU:0", "CPU:1"]) as strategy:
        with strategy.scope():
            both = [Variable(0.0, aggregation=VariableAggregation.SUM) for _ in range(2)]

        def replica_fn() -> None:
            both[get_replica_context().replica_id_in_sync_group].assign(1.0)

        with pytest.raises(UsageError, match="replicas gave different variables to assign to"):
            strategy.run(replica_fn)
        assert [float(one) for one in both] == [0.0, 0.0]
