"""Positions are grouped by row, in order, whichever way the indices are sorted.

Few indices, and those of more rows than fit into keys, are sorted another way than the others.
Expected values come from a dictionary of lists.
"""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpistrat.collectives.backends.gpu.kernels import rows
from mpistrat.errors import UsageError
from mpistrat.tables import row_order

NUM_ROWS = {"32 bits": 2**19, "64 bits": 2**40, "more bits": 2**63}
"""The keys of up to 8192 positions have so many."""


def check_groups(indices, num_rows):
    """Compare the groups of an array with those that a loop makes."""
    before, groups = indices.copy(), rows.grouped(indices, num_rows)
    want = {}
    for position, row in enumerate(indices.tolist()):
        want.setdefault(row, []).append(position)
    ascending = sorted(want)
    lengths = [len(want[row]) for row in ascending]
    assert groups.num_groups == len(ascending)
    assert groups.rows.tolist() == ascending
    assert groups.starts.tolist() == np.cumsum([0, *lengths]).tolist()
    assert groups.positions.tolist() == [k for row in ascending for k in want[row]]
    parts = (groups.rows, groups.starts, groups.positions)
    assert groups.flat.tolist() == np.concatenate(parts).tolist()
    assert groups.flat.dtype == np.uint64
    assert groups.flat.flags.c_contiguous
    assert (indices == before).all()


@pytest.fixture
def always_keys(monkeypatch):
    """Sort few indices as many are sorted."""
    monkeypatch.setattr(row_order, "_FEW", 0)


@given(
    indices=st.lists(st.integers(0, 40), max_size=30),
    num_rows=st.sampled_from([41, *NUM_ROWS.values()]),
    dtype=st.sampled_from(["int8", "int32", "int64", "uint64"]),
    is_sorted=st.booleans(),
    step=st.sampled_from([1, -1, 2]),
    few=st.sampled_from([0, row_order._FEW]),
)
def test_groups_of_few_rows(indices, num_rows, dtype, is_sorted, step, few):
    indices = sorted(indices) if is_sorted else indices
    with mock.patch.object(row_order, "_FEW", few):
        check_groups(np.array(indices, dtype)[::step], num_rows)


@given(
    indices=st.lists(st.integers(2**63 - 5, 2**63 - 1) | st.integers(0, 2**63 - 1), max_size=30),
    dtype=st.sampled_from(["int64", "uint64"]),
    few=st.sampled_from([0, row_order._FEW]),
)
def test_groups_of_the_largest_rows(indices, dtype, few):
    with mock.patch.object(row_order, "_FEW", few):
        check_groups(np.array(indices, dtype), 2**63)


@pytest.mark.parametrize("num_rows", NUM_ROWS.values(), ids=NUM_ROWS)
@pytest.mark.parametrize("largest", [1, 3, 1000, 2**19])
@pytest.mark.parametrize("count", [1, 2, row_order._FEW - 1, row_order._FEW, 1024, 1025, 8192])
def test_groups_of_many_indices(num_rows, largest, count):
    check_groups(np.random.default_rng(count).integers(0, largest, count), num_rows)


@pytest.mark.usefixtures("always_keys")
@pytest.mark.parametrize("bits", [31, 32, 33, 63, 64, 65])
def test_keys_that_just_fit(bits):
    """Eight positions take three bits of a key, the largest row all others."""
    last = 2 ** (bits - 3) - 1
    check_groups(np.array([last, 0, last, last - 1, 0, 1, last, 0]), last + 1)


@pytest.mark.parametrize("few", [0, row_order._FEW])
def test_no_indices_of_no_rows(few, monkeypatch):
    monkeypatch.setattr(row_order, "_FEW", few)
    check_groups(np.array([], np.int64), 0)


@pytest.mark.parametrize("dtype", ["int8", "int64"])
@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([0, 5, -1], "index 5 at position 1; expected 0 to 4"),
        ([-1, 5], "index -1 at position 0; expected 0 to 4"),
        ([4, 0, -3], "index -3 at position 2; expected 0 to 4"),
    ],
)
def test_the_first_index_that_is_no_row_is_named(indices, message, dtype):
    with pytest.raises(UsageError, match=f"^{message}$"):
        rows.grouped(np.array(indices, dtype), 5)
