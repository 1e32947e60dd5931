"""Variables in parts are read and indexed as arrays are."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.strategy.sharded_variables import WHOLE, same
from mpistrat import ShardedVariable, Variable


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


@example([0], None, (0,))  # no row, and NumPy refuses it too
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
