"""Embeddings are looked up in variables in parts, in lists of them, and in arrays."""

import numpy as np
import pytest

from helpers.strategy.sharded_variables import WHOLE, same
from mpistrat import Variable
from mpistrat.errors import UsageError
from mpistrat.nn import embedding_lookup

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


def test_parts_of_several_dtypes_are_refused():
    """Their rows are copied as they are: an int32 would be read as a float32."""
    for kind in (Variable, np.asarray):
        parts = [kind(np.ones((2, 4), np.float32)), kind(np.ones((2, 4), np.int32))]
        with pytest.raises(UsageError, match="expected one dtype"):
            embedding_lookup(parts, [0, 3])
