"""Keys that the host makes are ascending by row, and by position within a row.

Expected values come from a dictionary of lists.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpistrat.collectives.backends.gpu.kernels import rows
from mpistrat.errors import UsageError

NUM_ROWS = {"19 bits": 2**19, "40 bits": 2**40, "as many as fit": 2**51}
"""Those of up to 8192 positions have 13 more."""


def check_keys(indices, num_rows):
    """Compare the keys of an array with those that a loop makes."""
    before, (keys, shift) = indices.copy(), rows.ordered_keys(indices, num_rows)
    want = {}
    for position, row in enumerate(indices.tolist()):
        want.setdefault(row, []).append(position)
    pairs = [(row, position) for row in sorted(want) for position in want[row]]
    assert [(key >> shift, key & (2**shift - 1)) for key in keys.tolist()] == pairs
    assert keys.dtype == np.uint64
    assert keys.flags.c_contiguous
    assert (indices == before).all()


@given(
    indices=st.lists(st.integers(0, 40), max_size=30),
    num_rows=st.sampled_from([41, *NUM_ROWS.values()]),
    dtype=st.sampled_from(["int8", "int32", "int64", "uint64"]),
    is_sorted=st.booleans(),
    step=st.sampled_from([1, -1, 2]),
)
def test_keys_of_few_rows(indices, num_rows, dtype, is_sorted, step):
    indices = sorted(indices) if is_sorted else indices
    check_keys(np.array(indices, dtype)[::step], num_rows)


@given(
    indices=st.lists(st.integers(2**59 - 5, 2**59 - 1) | st.integers(0, 2**59 - 1), max_size=30),
    dtype=st.sampled_from(["int64", "uint64"]),
)
def test_keys_of_the_largest_rows(indices, dtype):
    check_keys(np.array(indices, dtype), 2**59)


@pytest.mark.parametrize("num_rows", NUM_ROWS.values(), ids=NUM_ROWS)
@pytest.mark.parametrize("largest", [1, 3, 1000, 2**19])
@pytest.mark.parametrize("count", [1, 2, 1024, 1025, 8192])
def test_keys_of_many_indices(num_rows, largest, count):
    check_keys(np.random.default_rng(count).integers(0, largest, count), num_rows)


@pytest.mark.parametrize("bits", [31, 32, 33, 63, 64])
def test_keys_that_just_fit(bits):
    """Eight positions take three bits of a key, the largest row all others."""
    last = 2 ** (bits - 3) - 1
    check_keys(np.array([last, 0, last, last - 1, 0, 1, last, 0]), last + 1)


def test_a_key_of_more_than_64_bits_is_refused():
    with pytest.raises(UsageError, match="have 65 bits together; expected at most 64: add fewer"):
        rows.ordered_keys(np.zeros(8, np.int64), 2**62)


def test_no_indices_of_no_rows():
    check_keys(np.array([], np.int64), 0)


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
        rows.ordered_keys(np.array(indices, dtype), 5)


def test_indices_that_are_no_whole_numbers_are_refused():
    with pytest.raises(UsageError, match="indices of dtype float64; expected whole numbers"):
        rows.ordered_keys(np.array([1.0]), 5)
