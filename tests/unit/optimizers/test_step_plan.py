"""Steps with the same variables: what follows from these alone is found out once."""

import gc
import weakref

import numpy as np
import pytest

import mpistrat
from mpistrat.errors import ArgumentTypeError, ContextError, UsageError
from mpistrat.optimizers import SGD, step_plan

ONE = np.ones(3)


def variables(count=3):
    return [mpistrat.Variable(np.zeros(3), name=f"w{i}") for i in range(count)]


def step(optimizer, some, scale=1.0):
    optimizer.apply_gradients([(scale * ONE, one) for one in some])


@pytest.fixture
def looked_at(monkeypatch):
    """Return a list of the variables that were looked at."""
    found, container = [], step_plan.container

    def noting(one):
        found.append(one)
        return container(one)

    monkeypatch.setattr(step_plan, "container", noting)
    return found


def test_variables_are_looked_at_once(looked_at):
    some, optimizer = variables(), SGD(1.0)
    for _ in range(5):
        step(optimizer, some)
    assert len(looked_at) == len(some)
    assert [one.numpy().tolist() for one in some] == [[-5.0] * 3] * 3
    # Each optimizer keeps what is its own.
    step(SGD(1.0, 0.5), some)
    assert len(looked_at) == 2 * len(some)


def test_in_replicas(looked_at):
    with mpistrat.MirroredStrategy(["CPU:0", "CPU:1"]) as strategy:
        with strategy.scope():
            some, optimizer = variables(), SGD(1.0)
        for _ in range(5):
            strategy.run(lambda: step(optimizer, some))
        # Each replica makes a plan in the first step, before the optimizer is built.
        assert len(looked_at) == 2 * len(some)
        for one in some:
            assert [copy.numpy().tolist() for copy in one.values] == [[-10.0] * 3] * 2


def test_variables_by_turns():
    """As many combinations as are remembered, and more; also in another order."""
    some, optimizer = variables(4), SGD(1.0, 0.5)
    velocity, expected = np.zeros(4), np.zeros(4)
    combinations = [(0, 1, 2, 3), (3, 2, 1, 0), (0,), (1, 2), (2, 1), (3,)]
    for turn in range(3):
        for combination in combinations:
            step(optimizer, [some[i] for i in combination], scale=turn + 1.0)
            for i in combination:
                velocity[i] = 0.5 * velocity[i] - (turn + 1.0)
                expected[i] += velocity[i]
    assert [one.numpy().tolist() for one in some] == [[value] * 3 for value in expected]
    assert optimizer.iterations == 3 * len(combinations)


def test_a_variable_without_a_gradient_stays():
    some, optimizer = variables(2), SGD(1.0)
    for gradient in (ONE, None, ONE):
        optimizer.apply_gradients([(ONE, some[0]), (gradient, some[1])])
    assert [one.numpy()[0] for one in some] == [-3.0, -2.0]


@pytest.mark.parametrize(
    ("gradient", "error", "text"),
    [
        (np.ones(4), UsageError, r"shape \(4,\)"),
        (np.ones((3, 1)), UsageError, r"shape \(3, 1\)"),
        (np.array(["a"] * 3), ArgumentTypeError, "dtype"),
    ],
)
def test_later_gradients_are_checked_as_the_first_ones(gradient, error, text):
    with mpistrat.OneDeviceStrategy("CPU:0").scope():
        some, optimizer = variables(2), SGD(1.0)
    step(optimizer, some)
    with pytest.raises(error, match=text):
        optimizer.apply_gradients([(ONE, some[0]), (gradient, some[1])])
    with pytest.raises(ArgumentTypeError, match="pair"):
        optimizer.apply_gradients([(ONE, some[0]), (ONE, some[1], ONE)])
    step(optimizer, some)
    optimizer.apply_gradients([([1, 1, 1], some[0]), (np.ones(3, "f4"), some[1])])
    assert [one.numpy().tolist() for one in some] == [[-3.0] * 3] * 2


def test_a_replica_of_another_strategy_is_refused_in_each_step():
    with mpistrat.OneDeviceStrategy("CPU:0").scope():
        some, optimizer = variables(), SGD(1.0)
    step(optimizer, some)
    with (
        mpistrat.MirroredStrategy(["CPU:0", "CPU:1"]) as other,
        pytest.raises(ContextError, match="apply_gradients in a replica"),
    ):
        other.run(lambda: step(optimizer, some))
    step(optimizer, some)
    assert some[0].numpy()[0] == -2.0


def test_what_is_refused_is_not_kept():
    """Else the memory of a variable would stay for as long as the optimizer."""
    optimizer = SGD(1.0)
    (one,) = variables(1)
    with pytest.raises(UsageError):
        optimizer.apply_gradients([(np.ones(4), one)])
    reference = weakref.ref(one)
    del one
    gc.collect()
    assert reference() is None


def test_an_optimizer_is_saved_without_its_plans():
    some, optimizer = variables(), SGD(1.0, 0.5)
    before = set(vars(optimizer))
    step(optimizer, some)
    assert set(vars(optimizer)) == before  # what a checkpoint goes through
