"""Optimizers that run on the ps, variables in parts, and checkpoints of both."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

import mpistrat
from helpers.coordinator.coordination import Cast, on_chief, on_jobs
from helpers.strategy.training import MAKERS, STEPS, new_variables, step_gradients
from mpistrat import IndexedSlices, ShardedVariable, Variable
from mpistrat.errors import ContextError
from mpistrat.optimizers import SGD, Adam
from mpistrat.tables.partitioners import FixedShardsPartitioner
from mpistrat.testing.sets import takes_long
from mpistrat.train import Checkpoint


def train(optimizer, variables, first, last):
    for step in range(first, last):
        gradients = step_gradients(step, *variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))


def alone(make):
    """Return the variables of one process, after training."""
    variables = new_variables()
    train(make(), variables, 0, STEPS)
    return [np.asarray(one) for one in variables]


@takes_long()
@on_jobs
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_one_worker_at_a_time_trains_as_one_process_does(layout, parts, make):
    expected = alone(make)

    @on_chief(layout, FixedShardsPartitioner(parts))
    def _(strategy, coordinator):
        optimizer = make()
        with strategy.scope():
            variables = new_variables()
        optimizer.build(variables)

        def worker_fn(step):
            strategy.run(train, args=(optimizer, variables, step, step + 1))

        for step in range(STEPS):
            coordinator.schedule(worker_fn, args=(step,))
            coordinator.join()
        for found, one in zip(variables, expected, strict=True):
            np.testing.assert_allclose(found.numpy(), one, rtol=1e-12, atol=1e-14)
        assert optimizer.iterations == STEPS
        kept = len(optimizer.rule.initial_slots())
        assert len(optimizer.variables) == 1 + 2 * kept
        for slot in optimizer.variables[1:]:
            of = variables[0] if slot.name.startswith("w/") else variables[1]
            assert [p.device for p in parts_of(slot)] == [p.device for p in parts_of(of)]


def parts_of(variable):
    return variable.variables if isinstance(variable, ShardedVariable) else [variable]


@on_jobs
def test_steps_of_all_workers_are_counted(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        optimizer = SGD(1.0)
        with strategy.scope():
            v = Variable(np.zeros((4, 2)))
        optimizer.build([v])

        def worker_fn(rows):
            optimizer.apply_gradients([(IndexedSlices(np.ones((len(rows), 2)), rows), v)])

        for _ in range(100):
            coordinator.schedule(worker_fn, args=([1, 3, 1],))
        coordinator.join()
        assert optimizer.iterations == 100
        assert v.numpy()[:, 0].tolist() == [0.0, -200.0, 0.0, -100.0]
        optimizer.apply_gradients([(np.ones((4, 2)), v)])  # on the chief, too
        assert v.numpy()[:, 0].tolist() == [-1.0, -201.0, -1.0, -101.0]


@on_jobs
def test_an_optimizer_is_built_on_the_chief(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        optimizer = Adam()
        with strategy.scope():
            v = Variable(np.zeros(2))
        coordinator.schedule(lambda: optimizer.apply_gradients([(np.ones(2), v)]))
        with pytest.raises(ContextError, match=r"optimizer\.build\(variables\)"):
            coordinator.join()


@on_jobs
def test_variables_in_parts_on_workers(layout):
    @on_chief(layout, FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        whole = np.arange(15.0).reshape(5, 3)
        with strategy.scope():
            w = Variable(whole, name="w")
            scalar = Variable(1.0)
        assert [part.name for part in w.variables] == ["w/part_0:0", "w/part_1:0"]
        assert len({part.device for part in w.variables}) == 2
        assert not isinstance(scalar, ShardedVariable)

        def work(ids):
            before = w + 0
            w.scatter_add(IndexedSlices(np.ones((2, 3)), [0, 4]))
            w.assign_add(np.ones((5, 3)))
            w.scatter_max(IndexedSlices(np.full((1, 3), 100.0), [2]))
            return before, w[1:4], mpistrat.nn.embedding_lookup(w, ids), len(w.variables)

        before, some, looked_up, count = coordinator.schedule(work, args=([4, 0, 4],)).fetch()
        np.testing.assert_array_equal(before, whole)
        expected = whole + 1
        expected[[0, 4]] += 1
        expected[2] = 100
        np.testing.assert_array_equal(w.numpy(), expected)
        np.testing.assert_array_equal(some, expected[1:4])
        np.testing.assert_array_equal(looked_up, expected[[4, 0, 4]])
        assert count == 2


def test_beside_another_variable_one_is_not_divided():
    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            w = Variable(np.zeros((6, 2)))
            with strategy.extended.colocate_vars_with(w):
                beside = Variable(np.zeros((6, 2)))
        assert not isinstance(beside, ShardedVariable)
        assert beside.device == w.variables[0].device


def test_parts_are_made_one_by_one_if_their_sizes_are_given():
    asked = []

    def initial(partition_shape, partition_offset):
        asked.append((partition_shape, partition_offset))
        return np.full(partition_shape, float(partition_offset[0]), np.float32)

    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            w = Variable(initial, shape=(5, 2), dtype=np.float32)
        assert w.numpy()[:, 1].tolist() == [0.0, 0.0, 0.0, 3.0, 3.0]
        assert asked == [((3, 2), (0, 0)), ((2, 2), (3, 0))]


@pytest.mark.parametrize("parts", [1, 3])
def test_checkpoints_restore_onto_any_number_of_parts(parts):
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "ckpt")

        @on_chief(Cast(1, 2, 2), FixedShardsPartitioner(2))
        def _(strategy, coordinator):
            optimizer = Adam(0.02)
            with strategy.scope():
                variables = new_variables()
            optimizer.build(variables)
            coordinator.schedule(train, args=(optimizer, variables, 0, 3))
            coordinator.join()
            Checkpoint(variables=variables, optimizer=optimizer).write(path)

        @on_chief(Cast(1, 1, 3), FixedShardsPartitioner(parts))
        def _(strategy, coordinator):
            optimizer = Adam(0.02)
            with strategy.scope():
                variables = new_variables()
            optimizer.build(variables)
            checkpoint = Checkpoint(variables=variables, optimizer=optimizer)
            checkpoint.read(path).assert_consumed()
            assert optimizer.iterations == 3
            coordinator.schedule(train, args=(optimizer, variables, 3, STEPS))
            coordinator.join()
            expected = alone(lambda: Adam(0.02))
            for found, one in zip(variables, expected, strict=True):
                np.testing.assert_allclose(found.numpy(), one, rtol=1e-12, atol=1e-14)
