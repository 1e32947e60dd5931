"""Rows are added to variables in parts, and to plain ones."""

import ml_dtypes
import numpy as np
import pytest

import mpistrat
from helpers.strategy.sharded_variables import WHOLE, make, same
from mpistrat import IndexedSlices, MirroredStrategy, Variable
from mpistrat.errors import ArgumentTypeError, UsageError

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
