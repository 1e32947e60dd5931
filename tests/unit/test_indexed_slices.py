"""Rows of an array that is zero elsewhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpistrat import IndexedSlices
from mpistrat.errors import ArgumentTypeError, UsageError


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


def test_what_is_sorted_and_single_is_not_copied():
    slices = IndexedSlices(np.ones((3, 2)), [0, 2, 5])
    assert slices.summed() is slices


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
