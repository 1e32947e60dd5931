"""Optimizers on ranks: the weights of one process with the whole batch, on every rank."""

import numpy as np
import pytest

import mpistrat
from helpers.mistakes import abandon, refused
from mpistrat import CentralStorageStrategy, IndexedSlices, MirroredStrategy
from mpistrat.errors import CommunicationError, UsageError
from mpistrat.optimizers import SGD, Adagrad, Adam
from mpistrat.optimizers.base import Optimizer
from mpistrat.tables.update_rules import SGDRule
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.mpi(ranks=[1, 2, 3])

KINDS = [MirroredStrategy, CentralStorageStrategy]
MAKERS = {
    "momentum": lambda: SGD(0.05, 0.9),
    "adagrad": lambda: Adagrad(0.1),
    "adam": lambda: Adam(0.02),
    "lazy": lambda: Adam(0.02, lazy=True),
}
BATCH, STEPS = 12, 6


class FailingRule(SGDRule):
    def change(self, slots, gradient, step, learning_rate):
        raise MemoryError("no memory left")


def data(step):
    """Return features, words and labels of a global batch."""
    random = np.random.default_rng(step)
    features = random.normal(size=(BATCH, 4))
    return features, random.integers(0, 9, size=BATCH), features.sum(axis=1)


def new_variables():
    return [mpistrat.Variable(np.zeros(4)), mpistrat.Variable(np.zeros((9, 1)))]


def by_default(make):
    """Return the variables of one process alone, after training."""
    variables = new_variables()
    train(make(), variables, np.arange(BATCH))
    return variables


def gradients_of(weights, table, step, rows):
    """Return the gradients of the squared error on `rows` of a batch, over the whole batch."""
    features, words, labels = (part[rows] for part in data(step))
    error = features @ weights.value() + table.value()[words, 0] - labels
    error = 2 * error / BATCH
    return [features.T @ error, IndexedSlices(error[:, np.newaxis], words, (9, 1))]


def train(optimizer, variables, rows, **how):
    for step in range(STEPS):
        gradients = gradients_of(*variables, step, rows)
        optimizer.apply_gradients(zip(gradients, variables, strict=True), **how)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("kind", [KINDS[0], pytest.param(KINDS[1], marks=takes_long())])
def test_weights_are_those_of_one_process(make, devices, kind):
    alone = by_default(make)
    with kind([f"CPU:{i}" for i in range(devices)]) as strategy:
        with strategy.scope():
            variables, optimizer = new_variables(), make()

        def replica_fn():
            replica = mpistrat.get_replica_context()
            first, count = replica.replica_id_in_sync_group, replica.num_replicas_in_sync
            train(optimizer, variables, np.arange(BATCH)[first::count])  # unequal shares, too

        strategy.run(replica_fn)
        for one, expected in zip(variables, alone, strict=True):
            np.testing.assert_allclose(one.numpy(), expected.numpy(), rtol=1e-9, atol=1e-12)
            copies = [copy.numpy().tobytes() for copy in strategy.experimental_local_results(one)]
            everywhere = strategy.extended.communicator.allgather_object(copies)
            assert len({copy for copies in everywhere for copy in copies}) == 1
        assert optimizer.iterations == STEPS


@pytest.mark.parametrize("kind", KINDS)
def test_outside_of_run_gradients_are_taken_as_they_are(kind):
    alone = by_default(MAKERS["momentum"])
    with kind() as strategy:
        with strategy.scope():
            variables = new_variables()
        train(SGD(0.05, 0.9), variables, np.arange(BATCH))
        for one, expected in zip(variables, alone, strict=True):
            np.testing.assert_array_equal(one.numpy(), expected.numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_that_are_summed_already(kind):
    with kind() as strategy:
        with strategy.scope():
            weights = mpistrat.Variable(np.zeros(3))
        optimizer = SGD(1.0)
        strategy.run(
            lambda: optimizer.apply_gradients([(np.ones(3), weights)], True)  # not summed
        )
        assert weights.numpy().tolist() == [-1.0] * 3


@pytest.mark.mpi(ranks=[2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_that_fails_does_not_leave_the_others_waiting(kind):
    """One rank's gradient does not fit: every rank is told, and no weight has changed."""
    strategy = kind()
    is_first = strategy.extended.communicator.rank == 0
    with strategy.scope():
        weights = mpistrat.Variable(np.zeros(3))

    def replica_fn():
        SGD(1.0).apply_gradients([(np.ones(4 if is_first else 3), weights)])

    with refused(UsageError if is_first else CommunicationError, r"shape \(4,\) for variable"):
        strategy.run(replica_fn)
    assert weights.numpy().tolist() == [0.0] * 3
    abandon(strategy)


def test_central_slots_are_in_the_memory_that_ranks_share():
    """Each rank updates its rows in place, 0-d variables and such of fewer rows than ranks too."""
    with CentralStorageStrategy() as strategy:
        with strategy.scope():
            variables = [mpistrat.Variable(np.ones(shape)) for shape in ((), (1, 2), (7, 2))]
        optimizer = SGD(0.5, 0.9)
        for _ in range(2):
            strategy.run(
                lambda: optimizer.apply_gradients([(np.ones(v.shape), v) for v in variables])
            )
        count = strategy.num_replicas_in_sync
        for one, slot in zip(variables, optimizer.variables[1:], strict=True):
            np.testing.assert_allclose(one.value(), 1 - 0.5 * count * (1 + 1.9), rtol=1e-15)
            np.testing.assert_allclose(slot.value(), -0.5 * count * 1.9, rtol=1e-15)
            with pytest.raises(UsageError, match="all ranks read in place"):
                slot.live()


@pytest.mark.mpi(ranks=[2, 3])
def test_a_rule_that_fails_on_one_rank_fails_on_all():
    """As if one rank had no memory left for its rows' temporary arrays."""
    with CentralStorageStrategy() as strategy:
        with strategy.scope():
            weights = mpistrat.Variable(np.zeros(3))
        is_first = strategy.extended.communicator.rank == 0
        optimizer = Optimizer(FailingRule() if is_first else SGDRule(), 1.0)
        with refused(MemoryError if is_first else CommunicationError, "no memory left"):
            optimizer.apply_gradients([(np.ones(3), weights)])
        assert optimizer.iterations == 0
        SGD(1.0).apply_gradients([(np.ones(3), weights)])
        assert weights.numpy()[0] == -1.0


@pytest.mark.mpi(ranks=[2, 3])
def test_rows_on_one_rank_and_an_array_on_another():
    with MirroredStrategy() as strategy:
        with strategy.scope():
            table = mpistrat.Variable(np.zeros((3, 1)))
        is_first = strategy.extended.communicator.rank == 0
        gradient = np.ones((3, 1)) if is_first else IndexedSlices(np.ones((1, 1)), [0])
        with refused(CommunicationError, "rank 0"):
            strategy.run(lambda: SGD().apply_gradients([(gradient, table)]))
        assert table.numpy().tolist() == [[0.0]] * 3


@pytest.mark.mpi(ranks=[2, 3], timeout_s=40)
@pytest.mark.parametrize("kind", KINDS)
def test_rates_that_differ_are_told_to_all_ranks(kind):
    with kind() as strategy, strategy.scope():
        rank = strategy.extended.communicator.rank
        weights, optimizer = mpistrat.Variable(np.zeros(4)), SGD(lambda steps: 0.5 / (1 + steps))

        def step_often(count):
            for _ in range(count):
                strategy.run(lambda: optimizer.apply_gradients([(np.ones(4), weights)]))

        step_often(20)  # a function of the steps is the same on all ranks
        optimizer.learning_rate = 0.1 + rank
        rates = [0.1 + one for one in range(strategy.extended.communicator.size)]
        words = rf"rate of SGD in step 32 is \[{', '.join(map(str, rates))}\], by rank"
        with pytest.raises(UsageError, match=words):
            step_often(20)
        assert optimizer.iterations == 31
        optimizer.learning_rate = 0.5
        step_often(1)
