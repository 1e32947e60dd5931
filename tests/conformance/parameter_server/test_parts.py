"""Variables that a ParameterServerStrategy divides over its servers."""

import numpy as np
import pytest

from helpers.coordinator.coordination import Cast, on_chief, on_jobs
from mpistrat import IndexedSlices, ShardedVariable, Variable
from mpistrat.errors import UsageError
from mpistrat.experimental import partitioners
from mpistrat.nn import embedding_lookup
from mpistrat.optimizers import SGD, Adam
from mpistrat.tables.partitioners import FixedShardsPartitioner, MinSizePartitioner

WHOLE = np.arange(26.0).reshape(13, 2)


@on_jobs
def test_b86_the_partitioner_is_asked_for_each_variable(layout):
    asked = []

    def mine(shape, dtype):
        asked.append((shape, dtype.name))
        return [shape[0] // 4] + [1] * (len(shape) - 1)

    @on_chief(layout, mine)
    def _(strategy, coordinator):
        outside = Variable(np.zeros(8))
        with strategy.scope():
            made = [Variable(np.zeros(n, np.float32)) for n in (8, 4, 7, 12)]
            scalar = Variable(0.0)
            with pytest.raises(UsageError, match="at least 1"):
                Variable(np.zeros(3))
        assert asked == [((n,), "float32") for n in (8, 4, 7, 12)] + [((3,), "float64")]
        counts = [len(v.variables) if isinstance(v, ShardedVariable) else 0 for v in made]
        assert counts == [2, 0, 0, 3]
        assert not isinstance(scalar, ShardedVariable)
        assert type(outside) is Variable


@on_jobs
def test_b87_div(layout):
    @on_chief(layout, FixedShardsPartitioner(5))
    def _(strategy, coordinator):
        with strategy.scope():
            w = Variable(np.arange(13))

        def rows():
            return [part.numpy().tolist() for part in w.variables]

        expected = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10], [11, 12]]
        assert rows() == expected == coordinator.schedule(rows).fetch()


@on_jobs
def test_b88_beside_another_variable_one_is_not_divided(layout):
    @on_chief(layout, FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            w = Variable(WHOLE)
            for part in w.variables:
                with strategy.extended.colocate_vars_with(part):
                    beside = Variable(WHOLE)
                assert not isinstance(beside, ShardedVariable)
                assert beside.device == part.device
            assert isinstance(Variable(WHOLE), ShardedVariable)


@on_jobs
def test_b89_parts_have_names_and_are_variables(layout):
    @on_chief(layout, FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            w = Variable(WHOLE, name="w", trainable=False)

        def facts():
            return [(part.name, part.shape, part.trainable) for part in w.variables]

        expected = [("w/part_0:0", (7, 2), False), ("w/part_1:0", (6, 2), False)]
        assert facts() == expected == coordinator.schedule(facts).fetch()
        assert w.name == "w"


@on_jobs
def test_b90_an_array_whose_lookups_ask_for_rows_only(layout):
    @on_chief(layout, FixedShardsPartitioner(3))
    def _(strategy, coordinator):
        with strategy.scope():
            w = Variable(WHOLE)

        def read(ids):
            return np.asarray(w), w @ np.ones(2), embedding_lookup(w, ids), w[-1], w[10:2:-3]

        ids = np.array([[12, 0], [5, 5]])
        expected = WHOLE, WHOLE.sum(axis=1), WHOLE[ids], WHOLE[-1], WHOLE[10:2:-3]
        for found in (read(ids), coordinator.schedule(read, args=(ids,)).fetch()):
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)


@on_jobs
@pytest.mark.parametrize("of_rows", [False, True], ids=["all", "rows"])
def test_b92_gradients_of_the_whole_or_of_the_parts(layout, of_rows):
    gradient = IndexedSlices(np.ones((3, 2)), [12, 0, 12], (13, 2)) if of_rows else WHOLE
    alone, optimizer = Variable(WHOLE), Adam(0.1)
    for _ in range(4):
        optimizer.apply_gradients([(gradient, alone)])

    @on_chief(layout, FixedShardsPartitioner(3))
    def _(strategy, coordinator):
        with strategy.scope():
            w, mine = Variable(WHOLE), Adam(0.1)
            mine.build([w])

        def whole():
            mine.apply_gradients([(gradient, w)])

        def in_parts():
            mine.apply_gradients(zip(w.split(gradient), w.variables, strict=True))

        for step in (whole, in_parts):
            coordinator.schedule(step)
            coordinator.join()
            step()  # on the chief
        np.testing.assert_allclose(w.numpy(), alone.numpy(), rtol=1e-12)


def test_b95_at_least_so_many_bytes_a_part_and_one_a_server():
    servers = 3

    @on_chief(Cast(1, 1, servers), MinSizePartitioner(256 << 10, servers))
    def _(strategy, coordinator):
        with strategy.scope():
            first = Variable(np.zeros(1 << 14))  # makes their loads unequal
            made = [Variable(np.zeros((rows, 64), np.float32)) for rows in (512, 2048, 8192, 9999)]
        assert not isinstance(first, ShardedVariable)
        assert not isinstance(made[0], ShardedVariable)
        assert [len(v.variables) for v in made[1:]] == [2, 3, 3]
        for v in made[1:]:
            assert min(part.shape[0] * 256 for part in v) >= 256 << 10
            assert len({part.device for part in v}) == len(v.variables)


@on_jobs
def test_e20_a_dense_layer_in_two_parts(layout):
    class Dense:
        def __init__(self):
            self.w = Variable(np.random.default_rng(0).normal(size=(100, 10)), name="w")

        def __call__(self, x):
            return x * self.w

    @on_chief(layout, partitioners.FixedShardsPartitioner(num_shards=2))
    def _(strategy, coordinator):
        with strategy.scope():
            dense = Dense()
        assert len(dense.w.variables) == 2
        assert all(isinstance(part, Variable) for part in dense.w.variables)
        assert [part.name for part in dense.w.variables] == ["w/part_0:0", "w/part_1:0"]
        expected = 2.0 * dense.w.numpy()
        for found in (dense(2.0), coordinator.schedule(dense, args=(2.0,)).fetch()):
            np.testing.assert_array_equal(found, expected)


# ------------------------------------------------------------------------------- many workers


@on_jobs
def test_changes_of_all_workers_count_once_in_every_part(layout):
    @on_chief(layout, FixedShardsPartitioner(4))
    def _(strategy, coordinator):
        with strategy.scope():
            w = Variable(np.zeros((13, 2)))
            optimizer = SGD(1.0)
            optimizer.build([w])

        def change(seed):
            rows = np.random.default_rng(seed).integers(0, 13, 20)
            ones = IndexedSlices(np.ones((20, 2)), rows)
            w.scatter_add(ones)
            w.assign_add(np.ones((13, 2)))
            optimizer.apply_gradients([(ones, w)])  # takes what scatter_add gave

        for seed in range(50):
            coordinator.schedule(change, args=(seed,))
        coordinator.join()
        np.testing.assert_array_equal(w.numpy(), np.full((13, 2), 50.0))
        assert optimizer.iterations == 50


UFUNCS = {
    "scatter_add": np.add,
    "scatter_sub": np.subtract,
    "scatter_mul": np.multiply,
    "scatter_max": np.maximum,
    "scatter_min": np.minimum,
}
ASSIGNS = ("assign", "assign_add", "assign_sub")


def changes(seed, rows, dtype):
    """Return calls of any kind: a method, and an array or rows with their values."""
    random = np.random.default_rng(seed)
    for _ in range(12):
        method = random.choice([*ASSIGNS, *UFUNCS, "scatter_update"])
        if method in ASSIGNS:
            yield str(method), None, random.integers(-3, 4, (rows, 2)).astype(dtype)
        else:
            where = random.integers(0, rows, random.integers(0, 2 * rows))
            values = random.integers(-3, 4, (where.size, 2)).astype(dtype)
            yield str(method), where, values


def change_array(array, method, where, values):
    if method == "assign":
        array[...] = values
    elif method in ASSIGNS:
        array += values if method == "assign_add" else -values
    elif method == "scatter_update":
        for row, value in zip(where, values, strict=True):
            array[row] = value
    else:
        UFUNCS[method].at(array, where, values)


def change_variable(variable, method, where, values):
    given = values if where is None else IndexedSlices(values, where)
    getattr(variable, method)(given)


@on_jobs
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_calls_of_any_kind_in_any_order_do_what_they_do_to_an_array(layout, parts):
    @on_chief(layout, FixedShardsPartitioner(parts))
    def _(strategy, coordinator):
        def on_worker(variable, seed, rows, dtype):
            for change in changes(seed, rows, dtype):
                change_variable(variable, *change)
            return variable.numpy(), variable[rows // 2 :: -1], variable.sparse_read([rows - 1, 0])

        for seed, (rows, dtype) in enumerate(
            [(7, "float64"), (13, "float32"), (1, "int64"), (20, "int32"), (5, "float16")]
        ):
            array = np.zeros((rows, 2), dtype)
            with strategy.scope():
                variable = Variable(array)
            for one in (seed, seed + 100):
                for change in changes(one, rows, dtype):
                    change_array(array, *change)
            for change in changes(seed, rows, dtype):
                change_variable(variable, *change)
            arguments = (variable, seed + 100, rows, dtype)
            whole, some, ends = coordinator.schedule(on_worker, args=arguments).fetch()
            np.testing.assert_array_equal(whole, array)
            np.testing.assert_array_equal(some, array[rows // 2 :: -1])
            np.testing.assert_array_equal(ends, array[[rows - 1, 0]])
            np.testing.assert_array_equal(variable.numpy(), array)
