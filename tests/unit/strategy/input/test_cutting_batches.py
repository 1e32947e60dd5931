"""Cutting global batches into one piece per replica."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpistrat.data import ArraySpec
from mpistrat.strategy.input.cutting import cut, empty_like, empty_of, has_rows
from mpistrat.strategy.input.source import as_element
from mpistrat.tables.even_cut import piece_bounds


@given(rows=st.integers(0, 10**6), pieces=st.integers(1, 200))
def test_pieces_partition_the_rows(rows, pieces):
    bounds = [piece_bounds(rows, pieces, index) for index in range(pieces)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == rows
    assert all(left[1] == right[0] for left, right in itertools.pairwise(bounds))
    sizes = [stop - start for start, stop in bounds]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


@given(rows=st.integers(0, 50), pieces=st.integers(1, 9), data=st.data())
def test_cut_keeps_order_structure_and_all_rows(rows, pieces, data):
    element = {"x": np.arange(rows * 2).reshape(rows, 2), "y": (np.arange(rows), None)}
    cuts = cut(element, pieces)
    assert len(cuts) == pieces
    assert np.array_equal(np.concatenate([c["x"] for c in cuts]), element["x"])
    assert np.array_equal(np.concatenate([c["y"][0] for c in cuts]), element["y"][0])
    assert all(c["y"][1] is None for c in cuts)
    first = data.draw(st.integers(0, pieces - 1))
    count = data.draw(st.integers(1, pieces - first))
    some = cut(element, pieces, first, count)
    assert [c["x"].tolist() for c in some] == [
        c["x"].tolist() for c in cuts[first : first + count]
    ]


@pytest.mark.parametrize(
    ("rows", "pieces", "sizes"),
    [(2, 2, [1, 1]), (1, 2, [1, 0]), (6, 2, [3, 3]), (5, 2, [3, 2]), (8, 3, [3, 3, 2])],
)
def test_b67_sizes(rows, pieces, sizes):
    assert [len(piece) for piece in cut(np.arange(rows), pieces)] == sizes


def test_pieces_are_views():
    batch = np.arange(6)
    assert all(np.shares_memory(piece, batch) for piece in cut(batch, 3))


def test_an_element_without_rows_says_to_batch():
    for element in (np.float32(1), {"x": np.zeros(3), "n": 3}, (np.zeros(2), np.array(1))):
        with pytest.raises(ValueError, match=r"\.batch\(global_batch_size\)"):
            cut(element, 2)
    with pytest.raises(ValueError, match="no array"):
        cut((None,), 2)


def test_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match=r"\[4, 5\] rows"):
        cut((np.zeros(4), np.zeros(5)), 2)


def test_empties():
    element = {"x": np.zeros((4, 3), np.float32), "n": None}
    assert empty_like(element)["x"].shape == (0, 3)
    assert empty_like(element)["n"] is None
    made = empty_of({"x": ArraySpec((None, 3, None), np.int8)})["x"]
    assert (made.shape, made.dtype) == ((0, 3, 0), np.dtype("int8"))


def test_has_rows():
    assert has_rows((np.zeros(3), None, {"a": ArraySpec((None,), int)}))
    assert not has_rows((np.zeros(3), 1.0))
    assert not has_rows(ArraySpec((), int))


def test_foreign_elements():
    assert as_element([1, 2, 3]).tolist() == [1, 2, 3]
    assert as_element([[1, 2], [3, 4]]).shape == (2, 2)
    x, y = np.zeros(3), np.ones(3)
    loaded = as_element([x, {"y": [1, 2]}, y])
    assert isinstance(loaded, list)
    assert loaded[0] is x
    assert loaded[1]["y"].tolist() == [1, 2]
    assert as_element(x) is x
    assert as_element(3) == 3
