"""Ranks that go through variables of equal shapes in other orders: an error, no wrong sums."""

import numpy as np
import pytest

from helpers.mistakes import refused, replica, usable_after
from mpistrat import (
    CentralStorageStrategy,
    IndexedSlices,
    MirroredStrategy,
    Variable,
    VariableAggregation,
    VariableSynchronization,
)
from mpistrat.errors import MismatchError, UsageError
from mpistrat.optimizers import SGD

pytestmark = pytest.mark.mpi(ranks=2)

SUM = VariableAggregation.SUM


def made(strategy, count=6, **options):
    """Return variables of one shape."""
    with strategy.scope():
        return [
            Variable(np.ones((2, 2)), aggregation=SUM, name=f"w{i}", **options)
            for i in range(count)
        ]


def in_order(variables, rank):
    """Return them as they are on rank 0, and turned round on the others."""
    return variables if rank == 0 else variables[::-1]


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (2, "gradients of variables 1, 0"),
        (6, "gradients of variables 5, 4, 3, 2, 1, 0"),
    ],
)
def test_gradients(count, told):
    with usable_after() as (strategy, rank, _):
        variables = made(strategy, count)

        def step():
            SGD(0.1).apply_gradients((np.ones((2, 2)), v) for v in in_order(variables, rank))

        with refused(MismatchError, told):
            strategy.run(step)
        strategy.run(lambda: SGD(0.1).apply_gradients([(np.ones((2, 2)), v) for v in variables]))
        assert all(v.numpy()[0, 0] == pytest.approx(0.8) for v in variables)


def test_rows_of_gradients():
    with usable_after() as (strategy, rank, _):
        variables = made(strategy)
        rows = IndexedSlices(np.ones((1, 2)), np.array([0]))

        def step():
            SGD(0.1).apply_gradients((rows, v) for v in in_order(variables, rank))

        with refused(MismatchError, "gather of gradients of variables 0-5"):
            strategy.run(step)


def test_replicas_of_one_rank():
    with usable_after("CPU:0", "CPU:1") as (strategy, _, _):
        variables = made(strategy)

        def step(skips):
            order = in_order(variables, replica().replica_id_in_sync_group % 2)
            SGD(0.1).apply_gradients([(np.ones((2, 2)), v) for v in order], skips)

        with refused(UsageError, "the replicas gave different variables, or .*variables 0-5"):
            strategy.run(step, args=(False,))
        with refused(UsageError, "the replicas gave different variables, or orders of them"):
            strategy.run(step, args=(True,))


@pytest.mark.parametrize("kind", [MirroredStrategy, CentralStorageStrategy])
def test_assignments(kind):
    strategy = kind()
    rank = strategy.communicator.rank
    variables = made(strategy)

    def step():
        for variable in in_order(variables, rank):
            variable.assign_add(np.ones((2, 2)))

    with refused(MismatchError, r"assign_add .*variable 0\b.*\n.*assign_add .*variable 5\b"):
        strategy.run(step)
    strategy.close()


def test_values_of_variables_that_are_summed_when_they_are_read():
    with usable_after() as (strategy, rank, size):
        variables = made(strategy, synchronization=VariableSynchronization.ON_READ)
        with refused(MismatchError, r"value of variable 0\b.*\n.*value of variable 5\b"):
            in_order(variables, rank)[0].read_value()
        assert variables[0].read_value()[0, 0] == size


def test_names_of_new_variables():
    with usable_after() as (strategy, rank, _):
        with strategy.scope(), refused(MismatchError, "name=weights.*\n.*name=bias"):
            Variable(np.ones(2), name=("weights", "bias")[rank])
        with strategy.scope():  # what counts objects of one kind is no difference
            counted = f"dense_{rank}/kernel"
            assert Variable(np.ones(2), name=counted).name == f"{counted}:0"
            assert Variable(np.ones(2)).numpy()[0] == 1


@pytest.mark.parametrize("devices", [(), ("CPU:0", "CPU:1")])
def test_variables_that_replicas_name_by_their_own_number(devices):
    on_read = VariableSynchronization.ON_READ
    with usable_after(*devices) as (strategy, _, _):

        def make():
            name = f"v{replica().replica_id_in_sync_group}"
            total = Variable(0.0, name=f"t{name}", synchronization=on_read, aggregation=SUM)
            return Variable(1.0, name=name, aggregation=SUM), total

        weight, total = strategy.run(make)
        strategy.run(lambda: weight.assign_add(1.0))
        strategy.run(lambda: total.assign_add(1.0))
        strategy.run(lambda: SGD(0.5).apply_gradients([(1.0, weight)]))
        count = strategy.num_replicas_in_sync
        assert weight.numpy() == 1 + count - 0.5 * count
        assert total.read_value() == count
