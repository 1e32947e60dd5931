"""Variables on parameter servers: where they are, and who reads and changes them."""

import numpy as np
import pytest

from helpers.coordinator.coordination import Cast, on_chief, on_jobs
from mpistrat import IndexedSlices, Variable
from mpistrat.errors import ContextError, UsageError
from mpistrat.ps.messages import Read
from mpistrat.testing.sets import takes_long

PS = "/job:ps/replica:0/task:{}/device:CPU:0"


def test_e19_equal_variables_go_round_the_ps():
    @on_chief(Cast(1, 1, 3))
    def _(strategy, coordinator):
        v1 = Variable(0.0)
        with strategy.scope():
            others = [Variable(float(i)) for i in range(2, 6)]
        assert not hasattr(v1, "device")
        assert [v.device for v in others] == [PS.format(i) for i in (0, 1, 2, 0)]
        assert [float(v) for v in others] == [2.0, 3.0, 4.0, 5.0]


@on_jobs
def test_b83_placed_by_bytes(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            large = Variable(np.zeros(100))
            small = [Variable(np.zeros(10)) for _ in range(3)]
            with strategy.extended.colocate_vars_with(large):
                beside = Variable(1.0)
        assert large.device == beside.device == PS.format(0)
        assert [v.device for v in small] == [PS.format(1)] * 3
        assert strategy.extended.parameter_devices == (PS.format(0), PS.format(1))


@on_jobs
def test_b80_chief_and_workers_read_and_change_variables(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(np.zeros((2, 3)), name="v", trainable=False)
        assert (v.name, v.shape, v.dtype, v.trainable) == ("v:0", (2, 3), np.float64, False)

        def change(row, value):
            before = v.numpy()
            v.assign_add(np.full((2, 3), value))
            v.scatter_update(IndexedSlices(np.full((1, 3), 10.0 * value), [row]))
            return before, v + 0.0, v.dtype, strategy.extended.variable_created_in_scope(v)

        before, after, dtype, is_ours = coordinator.schedule(change, args=(1, 2.0)).fetch()
        assert before.tolist() == [[0.0] * 3] * 2
        assert after.tolist() == [[2.0] * 3, [20.0] * 3]
        assert dtype == np.float64
        assert is_ours
        v.assign_sub(np.ones((2, 3)))
        v.scatter_add(IndexedSlices(np.ones((2, 3)), [0, 0]))
        v.scatter_sub(IndexedSlices(np.ones((1, 3)), [1]))
        assert v.numpy().tolist() == [[3.0] * 3, [18.0] * 3]
        assert v.sparse_read([1, 1, 0])[:, 0].tolist() == [18.0, 18.0, 3.0]
        kept = v.value()
        v.assign(np.ones((2, 3)))
        assert kept[0, 0] == 3.0
        with pytest.raises(ValueError, match="read-only"):
            kept[0, 0] = 1.0


@on_jobs
def test_b80_changes_of_all_workers_count(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            total = Variable(np.zeros(1000))
            table = Variable(np.zeros((50, 4), np.float32))

        def add(i):
            total.assign_add(np.full(1000, float(i)))
            table.scatter_add(IndexedSlices(np.ones((3, 4), np.float32), [i % 50, 7, 7]))

        for i in range(200):
            coordinator.schedule(add, kwargs={"i": i})
        coordinator.join()
        assert (total.numpy() == sum(range(200))).all()
        expected = np.full((50, 4), 4.0)
        expected[7] += 400
        np.testing.assert_array_equal(table.numpy(), expected)


@on_jobs
def test_what_does_not_fit_is_refused_where_it_is_said(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(np.zeros((4, 2)), name="v")
            scalar = Variable(1)
        for call in (
            lambda: v.assign(np.zeros(3)),
            lambda: v.assign_add("x"),
            lambda: scalar.assign(0.5),
            lambda: v.sparse_read([4]),
            lambda: v.sparse_read([0.5]),
            lambda: v.scatter_add(IndexedSlices(np.zeros((1, 3)), [0])),
            lambda: v.scatter_update(IndexedSlices(np.zeros((1, 2)), [-1])),
            lambda: scalar.sparse_read([0]),
            v.live,
            lambda: strategy.extended.colocate_vars_with(Variable(0.0)).__enter__(),
        ):
            with pytest.raises(UsageError):
                call()
        assert v.numpy().tolist() == [[0.0, 0.0]] * 4

        def try_there():
            with pytest.raises(UsageError, match=r"shape \(3,\) to variable 'v:0'"):
                v.assign(np.zeros(3))
            with pytest.raises(ContextError, match="make it on the chief"):
                Variable(1.0)

        coordinator.schedule(try_there).fetch()


@on_jobs
def test_variables_that_nobody_holds_are_freed(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            v = Variable(np.zeros(10))
        key, ps = v.spec.key, v.spec.ps
        del v
        client = strategy.extended.client
        with pytest.raises(UsageError, match=f"no variable {key}"):
            client.ask(ps, Read(key, -1))


@takes_long()
@on_jobs
def test_large_values_travel(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        value = np.arange(3_000_000.0)
        with strategy.scope():
            v = Variable(value)

        def work(delta):
            v.assign_add(delta)
            return v.numpy() * 2

        result = coordinator.schedule(work, args=(value,)).fetch()
        np.testing.assert_array_equal(result, value * 4)
        np.testing.assert_array_equal(v.numpy(), value * 2)
