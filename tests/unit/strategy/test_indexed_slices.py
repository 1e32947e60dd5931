"""Rows of an array that is zero elsewhere."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpistrat import IndexedSlices, Variable
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.optimizers import SGD


@given(rows=st.lists(st.integers(0, 6), max_size=20), width=st.sampled_from([(), (3,), (2, 2)]))
def test_it_is_an_array_of_sums(rows, width):
    values = np.arange(len(rows) * int(np.prod(width)), dtype=float).reshape(len(rows), *width)
    expected = np.zeros((7, *width))
    np.add.at(expected, np.array(rows, int), values)
    slices = IndexedSlices(values, np.array(rows, int), (7, *width))
    np.testing.assert_array_equal(np.asarray(slices), expected)
    once = slices.summed()
    assert once.indices.tolist() == sorted(set(rows))
    np.testing.assert_array_equal(np.asarray(once), expected)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_half_types_are_summed_in_float32(dtype):
    # In half precision 2048 + 1 is 2048 (float16), 256 + 1 is 256 (bfloat16).
    values = np.ones((4097, 2), dtype)
    values[4096:] = 2048
    once = IndexedSlices(values, np.r_[np.full(4096, 3), 1]).summed()
    assert once.indices.tolist() == [1, 3]
    assert once.values.dtype == dtype
    assert once.values.tolist() == [[2048, 2048], [4096, 4096]]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "complex64"])
def test_the_dtype_stays(dtype):
    once = IndexedSlices(np.ones(3, dtype), [5, 0, 5]).summed()
    assert once.values.dtype == dtype
    assert once.values.tolist() == [True, np.ones(2, dtype).sum(dtype=dtype)]


def test_what_is_sorted_and_single_is_not_copied():
    slices = IndexedSlices(np.ones((3, 2)), [0, 2, 5])
    assert slices.summed() is slices


@pytest.mark.parametrize("values", [[], np.zeros((0, 2), np.float32)], ids=["list", "rows"])
def test_no_rows_at_all(values):
    slices = IndexedSlices(values, [], (7, *np.shape(values)[1:]))
    assert slices.indices.dtype == np.int64
    assert not np.asarray(slices.summed()).any()
    optimizer, table = SGD(1.0, 0.9), Variable(np.ones((7, 2), np.float32))
    none = IndexedSlices(np.zeros((0, 2), np.float32), [])
    optimizer.apply_gradients([(none, table)])
    assert (table.scatter_add(none).numpy() == 1.0).all()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (([1.0], [0.0]), ArgumentTypeError, "indices of dtype float64"),
        (([1.0, 2.0], [0]), UsageError, r"shape \(2,\) and indices of shape \(1,\)"),
        (([1.0], [[0]]), UsageError, r"expected \[n, ...\] and \[n\]"),
        (([[1.0]], [0], (4, 2)), UsageError, "do not fit into dense_shape"),
        (([1.0], [4], (4,)), UsageError, "1 of 1 indices are no rows of an array of 4"),
        (([1.0], [-1], (4,)), UsageError, "the first is -1; expected 0 to 3"),
    ],
)
def test_what_cannot_be_right(arguments, error, text):
    with pytest.raises(error, match=text):
        IndexedSlices(*arguments)


def test_without_a_shape_it_is_no_array():
    with pytest.raises(UsageError, match="without dense_shape"):
        np.asarray(IndexedSlices([1.0], [0]))
