"""Variables in parts that act as one: made by a partitioner, read, indexed and changed."""

import copy
import io
import pickle
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpistrat
from mpistrat import IndexedSlices, MirroredStrategy, ShardedVariable, Variable
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.experimental import partitioners
from mpistrat.nn import embedding_lookup
from mpistrat.strategy.partitioning import partitioned

WHOLE = np.arange(26, dtype=np.float32).reshape(13, 2)


def same(actual, expected):
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected), strict=True)


def make(value=WHOLE, parts=5, **options):
    """Return a variable in parts, made in the scope that this is in."""
    partitioner = partitioners.FixedShardsPartitioner(parts)
    options = {"initial_value": value, "name": "w", **options}
    return partitioned(lambda all_: [Variable(**one) for one in all_], options, partitioner)


@pytest.fixture(params=["plain", "mirrored"])
def w(request):
    if request.param == "plain":
        yield make()
        return
    with MirroredStrategy(["CPU:0", "CPU:1"]) as strategy, strategy.scope():
        yield make()


# ------------------------------------------------------------------------------------ partitioning


def test_b87_parts_have_consecutive_rows_the_first_ones_more():
    w = make(np.arange(13))
    assert isinstance(w, ShardedVariable)
    assert [part.numpy().tolist() for part in w.variables] == [
        *([0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10], [11, 12])
    ]


def test_b89_names(w):
    assert w.name == "w"
    assert [part.name for part in w] == [f"w/part_{i}:0" for i in range(5)]
    assert [part.name for part in make(name=None)] == ["Variable:0"] * 5


def test_b86_called_for_each_variable_with_its_shape_and_dtype():
    calls = []

    def mine(shape, dtype):
        calls.append((shape, dtype))
        return (2, 1)

    w = partitioned(lambda all_: [Variable(**one) for one in all_], {"initial_value": WHOLE}, mine)
    assert calls == [((13, 2), np.dtype(np.float32))]
    assert [part.shape for part in w] == [(7, 2), (6, 2)]


@pytest.mark.parametrize("value", [np.zeros(()), np.zeros((0, 3)), np.zeros((1, 3)), 2.5])
def test_b86_what_has_one_part_is_a_plain_variable(value):
    def as_many_as_possible(shape, dtype):
        return [100] + [1] * (len(shape) - 1)

    makes = [lambda all_: [Variable(**one) for one in all_]] * 2
    for partitioner, maker in zip([None, as_many_as_possible], makes, strict=True):
        variable = partitioned(maker, {"initial_value": value, "name": "v"}, partitioner)
        assert type(variable) is Variable
        assert variable.name == "v:0"
        same(variable, value)


@pytest.mark.parametrize("result", [[1, 2], [0, 1], [-1, 1], [], None, 3, ["2", 1], [2.0, 1]])
def test_b86_what_is_no_division(result):
    with pytest.raises(UsageError, match="expected a list or tuple"):
        partitioned(None, {"initial_value": WHOLE}, lambda shape, dtype: result)


def test_what_is_no_partitioner():
    with pytest.raises(ArgumentTypeError, match="variable_partitioner is a int"):
        partitioned(None, {"initial_value": WHOLE}, 3)


def test_b88_colocated_variables_are_not_divided():
    strategy = mpistrat.OneDeviceStrategy("CPU:0")
    with strategy, strategy.scope():
        w = make()
        for other in (w, w.variables[1]):
            with strategy.extended.colocate_vars_with(other):
                assert type(make()) is Variable
        assert isinstance(make(), ShardedVariable)
    with mpistrat.get_strategy().extended.colocate_vars_with(Variable(1.0)):
        assert type(make()) is Variable


def test_an_initial_value_may_be_asked_for_each_part():
    asked = []

    def initial(partition_shape=(6, 2), partition_offset=(0, 0)):
        asked.append((partition_shape, partition_offset))
        return np.full(partition_shape, partition_offset[0], np.int64)

    w = make(initial, 2, shape=(6, 2), dtype=np.float64)
    assert asked == [((3, 2), (0, 0)), ((3, 2), (3, 0))]
    same(w, np.repeat([0.0, 3.0], 6).reshape(6, 2))
    asked.clear()
    same(make(initial, 1, shape=(6, 2), dtype=np.float64), np.zeros((6, 2)))
    assert asked == [((6, 2), (0, 0))]


def test_an_initial_value_that_always_gives_the_whole():
    w = make(lambda **_: WHOLE, 3, shape=(13, 2), dtype=np.float32)
    same(w, WHOLE)
    same(make(lambda: WHOLE, 3, shape=(13, 2), dtype=np.float64), WHOLE.astype(float))


def test_an_initial_value_of_another_shape():
    with pytest.raises(UsageError, match="expected that of the part"):
        make(lambda **_: WHOLE[:5], 2, shape=(13, 2), dtype=np.float32)
    with pytest.raises(UsageError, match=r"shape \(13, 2\) and shape=\(3, 2\)"):
        Variable(WHOLE, shape=(3, 2))
    with pytest.raises(ArgumentTypeError, match="needs an initial_value"):
        partitioned(None, {"name": "w"}, partitioners.FixedShardsPartitioner(2))


def test_options_are_those_of_every_part():
    w = make(np.arange(4), 2, trainable=False, dtype=np.float16)
    assert not w.trainable
    assert w.dtype == np.float16
    assert w.synchronization is mpistrat.VariableSynchronization.AUTO
    assert w.aggregation is mpistrat.VariableAggregation.NONE


# --------------------------------------------------------------------------------------- container


def test_parts_know_their_whole(w):
    assert all(part.sharded is w for part in w.variables)
    assert w.distribute_strategy is w.variables[0].distribute_strategy
    assert w.distribute_strategy.extended.variable_created_in_scope(w)


def test_a_copy_has_copies_of_the_parts():
    w = make()
    other = copy.deepcopy(w)
    other.assign_add(np.ones_like(WHOLE))
    same(w, WHOLE)
    same(other, WHOLE + 1)
    assert all(part.sharded is other for part in other)
    assert copy.deepcopy(w.variables[1]).sharded is None


def test_it_travels_with_its_parts_or_finds_them_again():
    w = ShardedVariable([Variable.plain(initial_value=rows) for rows in (WHOLE[:4], WHOLE[4:])])
    other = pickle.loads(pickle.dumps(w))
    same(other, w)
    assert other.name == w.name
    assert all(part.sharded is other for part in other)

    class Here(pickle.Pickler):
        def persistent_id(self, thing):
            return next((i for i, part in enumerate(w.variables) if part is thing), None)

    class There(pickle.Unpickler):
        def persistent_load(self, number):
            return other.variables[number]

    for _ in range(2):
        file = io.BytesIO()
        Here(file).dump(w)
        assert There(io.BytesIO(file.getvalue())).load() is other


def test_it_goes_when_nobody_has_it():
    w = make()
    part, others = weakref.ref(w.variables[0]), w.variables[1:]
    del w
    assert part() is None
    assert all(other.sharded is None for other in others)


@pytest.mark.parametrize("given_", [[], None, 3, [1.0], Variable([1.0]), [Variable([1.0]), 2]])
def test_what_are_no_parts(given_):
    with pytest.raises(ArgumentTypeError, match="expected a list of variables"):
        ShardedVariable(given_)


def test_parts_that_do_not_fit():
    a = Variable(np.zeros((2, 3)))
    for other in (np.zeros((2, 4)), np.zeros(2), np.zeros((2, 3), np.float32)):
        with pytest.raises(UsageError, match="expected one dtype, and one shape"):
            ShardedVariable([a, Variable(other)])
    with pytest.raises(UsageError, match="a part has no rows"):
        ShardedVariable([Variable(1.0)])
    with pytest.raises(UsageError, match="already one"):
        ShardedVariable([a, a])
    whole = ShardedVariable([a])
    with pytest.raises(UsageError, match="already one"):
        ShardedVariable([a])
    assert a.sharded is whole


def test_there_is_no_length(w):
    with pytest.raises(TypeError):
        len(w)
    assert list(w) == w.variables


def test_repr(w):
    shown = "<mpistrat.ShardedVariable 'w' shape=(13, 2) dtype=float32, 5 parts>"
    assert repr(w) == str(w) == f"{w}" == shown


# ----------------------------------------------------------------------------------------- reading


def test_b90_it_is_an_array(w):
    for value in (w.numpy(), w.value(), w.read_value(), np.asarray(w), np.array(w)):
        same(value, WHOLE)
    same(np.asarray(w, np.float64), WHOLE.astype(float))
    same(w + 1, WHOLE + 1)
    same(1 - w, 1 - WHOLE)
    same(np.float32(2) * w @ np.float32([1, 2]), 2 * WHOLE @ np.float32([1, 2]))
    same(w == WHOLE, np.ones((13, 2), bool))
    same(np.exp(w), np.exp(WHOLE))
    same(-w, -WHOLE)
    assert (w.shape, w.dtype, w.ndim, w.size) == ((13, 2), np.float32, 2, 26)
    assert hash(w) == hash(w)


def test_what_was_read_is_a_copy(w):
    for value in (w.numpy(), w.value(), w[:], w[2], w[2:4], w[[1, 2]], w.sparse_read([1])):
        value[...] = -1
    same(w, WHOLE)


numbers = st.one_of(st.none(), st.integers(-16, 16))
steps = st.one_of(st.none(), st.integers(-5, 5).filter(bool))
first = st.one_of(
    st.builds(slice, numbers, numbers, steps),
    st.integers(-13, 12),
    st.sampled_from([None, Ellipsis]),
)
rest = st.one_of(
    st.just(()),
    st.tuples(st.one_of(st.integers(-2, 1), st.builds(slice, numbers, numbers, steps), st.none())),
)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), first, rest)
def test_indices_are_those_of_numpy(lengths, one, more):
    whole = np.arange(sum(lengths) * 2, dtype=np.int32).reshape(-1, 2)
    w = ShardedVariable([Variable(p) for p in np.split(whole, np.cumsum(lengths)[:-1])])
    key = (one, *more) if more else one
    same(indexed(w, key), indexed(whole, key))


def indexed(value, key):
    """Return what an index gives, or that it gives nothing."""
    try:
        return value[key]
    except IndexError:
        return "IndexError"


KEYS = [
    (),
    True,
    np.arange(13) % 3 == 0,
    [5, -1, 5],
    np.array([[0, 12], [3, 3]]),
    (slice(2, 9), [1, 0, 1]),
    (slice(2, 9), None, [True, False]),
    (-1, [0, 0]),
    (np.int8(-13), np.uint8(1)),
    ([1, 12], 1),
    (Ellipsis, 0),
    (slice(None, None, -1), Ellipsis, 1),
    (None, slice(3), Ellipsis),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_other_indices(w, key):
    same(w[key], WHOLE[key])


@pytest.mark.parametrize("row", [13, -14, 10**20])
def test_a_row_that_is_not_there(w, row):
    with pytest.raises(IndexError, match="13 rows; expected -13 to 12"):
        w[row]


class Counted(Variable):
    """A variable that counts how often it was read, as a whole or by rows."""

    reads = 0

    def _read(self):
        self.reads += 1
        return super()._read()


def counted(value):
    return Counted.plain(initial_value=value)


def test_only_parts_that_have_the_rows_are_read():
    parts = [counted(rows) for rows in np.split(WHOLE, [4, 8])]
    w = ShardedVariable(parts)
    for part in parts:
        part.reads = 0
    for key in (5, slice(4, 7), slice(7, 3, -2)):
        w[key]
    assert [part.reads for part in parts] == [0, 3, 0]


# ---------------------------------------------------------------------------------------- changing


def test_assignments(w):
    assert w.assign(WHOLE * 2) is w
    same(w, WHOLE * 2)
    assert w.assign_add(WHOLE) is w
    assert w.assign_sub(np.full((13, 2), 0.5)) is w
    same(w, WHOLE * 3 - np.float32(0.5))
    w.assign(w * 2)
    w.assign(w)
    same(w, WHOLE * 6 - 1)


@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
@pytest.mark.parametrize(
    "value", [np.zeros((12, 2)), np.zeros(2), 1.0, np.zeros((13, 2), complex), "text"]
)
def test_what_cannot_be_assigned(w, method, value):
    with pytest.raises(UsageError):
        getattr(w, method)(value)
    same(w, WHOLE)


def test_in_place_operators_are_refused(w):
    with pytest.raises(TypeError, match="assign_add"):
        np.add(w, 1, out=w)


SCATTERS = {
    "scatter_add": np.add,
    "scatter_sub": np.subtract,
    "scatter_mul": np.multiply,
    "scatter_div": np.true_divide,
    "scatter_max": np.maximum,
    "scatter_min": np.minimum,
}


@pytest.mark.parametrize("method", SCATTERS)
def test_scatters_count_a_row_as_often_as_it_comes(w, method):
    rows = np.array([12, 0, 5, 0, 9])
    values = np.linspace(0.5, 20, 10, dtype=np.float32).reshape(5, 2)
    expected = WHOLE.copy()
    SCATTERS[method].at(expected, rows, values)
    assert getattr(w, method)(IndexedSlices(values, rows)) is w
    same(w, expected)


@pytest.mark.parametrize("method", ["scatter_update", "batch_scatter_update"])
def test_scatter_update(w, method):
    values = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    assert getattr(w, method)(IndexedSlices(values, [12, 4, 4])) is w
    expected = WHOLE.copy()
    expected[[12, 4]] = values[[0, 2]]
    same(w, expected)


@pytest.mark.parametrize("method", [*SCATTERS, "scatter_update"])
def test_scatters_are_checked_before_anything_is_changed(w, method):
    one = np.ones((2, 2), np.float32)
    for slices in (
        IndexedSlices(one, [0, 13]),
        IndexedSlices(one, [-1, 0]),
        IndexedSlices(np.ones((2, 3)), [0, 1]),
        IndexedSlices(np.ones(2), [0, 1]),
        IndexedSlices(one.astype(complex), [0, 1]),
    ):
        with pytest.raises(UsageError):
            getattr(w, method)(slices)
    with pytest.raises(ArgumentTypeError, match="expected IndexedSlices"):
        getattr(w, method)(one)
    same(w, WHOLE)


def test_scatters_of_plain_variables():
    v = Variable(np.zeros((3, 2), ml_dtypes.bfloat16))
    v.scatter_add(IndexedSlices(np.ones((2, 2)), [1, 1])).scatter_sub(
        IndexedSlices(np.ones((1, 2)), [2])
    )
    assert v.numpy().tolist() == [[0, 0], [2, 2], [-1, -1]]
    with pytest.raises(UsageError, match="has no rows"):
        Variable(1.0).scatter_add(IndexedSlices(np.ones(1), [0]))
    with pytest.raises(UsageError, match="no whole numbers"):
        Variable([1, 2]).scatter_div(IndexedSlices(np.ones(1, int), [0]))
    with pytest.raises(UsageError, match="of dtype bool"):
        Variable([True]).scatter_sub(IndexedSlices(np.ones(1, bool), [0]))


DTYPES = ["bool", "int8", "uint64", "float16", "float32", "complex128", ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [(), (3,), (0,), (2, 2)])
def test_rows_of_any_dtype_and_shape(dtype, width):
    v = Variable(np.zeros((5, *width), dtype))
    v.scatter_add(IndexedSlices(np.ones((4, *width), dtype), [0, 4, 0, 2]))
    expected = np.array([2, 0, 1, 0, 1], dtype).reshape(5, *[1] * len(width))
    same(v, np.broadcast_to(expected, (5, *width)))
    same(v.sparse_read([[4, 1]]), v.numpy()[[[4, 1]]])


def test_rows_of_its_own_value_may_be_scattered():
    v = Variable(np.arange(6.0).reshape(3, 2))
    v.scatter_add(IndexedSlices(v.value()[::-1], [0, 1, 2]))
    v.scatter_update(IndexedSlices(v.value()[:2], [1, 2]))
    same(v, np.array([[4.0, 6.0]] * 3))


def test_a_mirrored_variable_is_not_scattered_to_in_a_replica():
    with MirroredStrategy(["CPU:0", "CPU:1"]) as strategy:
        with strategy.scope():
            w = make()
            state = Variable(np.zeros(3), synchronization=mpistrat.VariableSynchronization.ON_READ)
        delta = IndexedSlices(np.ones((1, 2), np.float32), [3])

        def wrong():
            w.scatter_add(delta)

        def own():
            state.scatter_add(IndexedSlices(np.ones(1), [1]))
            return state.numpy()

        strategy_in = mpistrat.get_strategy()
        same(strategy.run(own).values[1], [0.0, 1.0, 0.0])
        with pytest.raises(UsageError, match="merge_call"):
            strategy.run(wrong)
        assert mpistrat.get_strategy() is strategy_in
    same(w, WHOLE)


def test_scatters_in_updates():
    with MirroredStrategy(["CPU:0", "CPU:1"]) as strategy, strategy.scope():
        v = Variable(np.zeros(2))
        slices = mpistrat.PerReplica([IndexedSlices([1.0], [0]), IndexedSlices([1.0], [1])])
        strategy.extended.update(v, lambda copy_, delta: copy_.scatter_add(delta), (slices,))
        same(v.values[0], [1.0, 0.0])
        same(v.values[1], [0.0, 1.0])


def test_assigned_in_a_replica():
    with MirroredStrategy(["CPU:0", "CPU:1"]) as strategy:
        with strategy.scope():
            w = make(aggregation=mpistrat.VariableAggregation.SUM)

        def add():
            replica = mpistrat.get_replica_context().replica_id_in_sync_group
            w.assign_add(np.full((13, 2), replica + 1))

        strategy.run(add)
        same(w, WHOLE + 3)


# -------------------------------------------------------------------------------------- embeddings

IDS = [3, [], [12, 0, 12], np.array([[5, 5], [6, 12]], np.uint8)]


@pytest.mark.parametrize("ids", IDS, ids=str)
def test_b90_lookups_are_in_the_order_of_the_ids(w, ids):
    expected = WHOLE[np.asarray(ids, int)]
    same(w.sparse_read(ids), expected)
    for params in (
        w,
        w.variables,
        Variable(WHOLE),
        [Variable(WHOLE)],
        WHOLE,
        [WHOLE[:4], WHOLE[4:]],
    ):
        same(embedding_lookup(params, ids), expected)


def test_long_rows_are_scaled_down(w):
    rows = embedding_lookup(w, [[0, 1], [12, 3]], max_norm=5.0)
    assert rows.dtype == np.float32
    lengths = np.linalg.norm(WHOLE, axis=1)[[0, 1, 12, 3]]
    np.testing.assert_allclose(
        np.linalg.norm(rows, axis=-1).ravel(), np.minimum(lengths, 5.0), rtol=1e-6
    )
    table = np.ones((3, 2, 2), np.float32)
    np.testing.assert_allclose(embedding_lookup(table, 1, max_norm=1.0), table[1] / 2)


@pytest.mark.parametrize("ids", [13, [0, -1], [0.5], ["a"], [True]])
def test_what_are_no_ids(w, ids):
    for params in (w, w.variables, WHOLE):
        with pytest.raises(UsageError):
            embedding_lookup(params, ids)


@pytest.mark.parametrize("params", [[], 1.0, [WHOLE, WHOLE[:, :1]], [Variable(1.0)]])
def test_what_is_no_table(params):
    with pytest.raises(UsageError, match="expected at least one"):
        embedding_lookup(params, [0])
