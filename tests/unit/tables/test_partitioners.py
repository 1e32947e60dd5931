"""Into how many parts variables are divided, where the parts go, and which rows they have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.ps.placement import Placement
from mpistrat.tables.partitioners import (
    FixedShardsPartitioner,
    MaxSizePartitioner,
    MinSizePartitioner,
    Partitioner,
)
from mpistrat.tables.row_ranges import RowRanges, joined

# ------------------------------------------------------------------------------------ partitioners

CASES = [
    (FixedShardsPartitioner(2), (10, 3), [2, 1]),
    (FixedShardsPartitioner(5), (3,), [3]),
    (MinSizePartitioner(4, 2), (6, 1), [2, 1]),
    (MinSizePartitioner(4, 10), (6, 1), [6, 1]),
    (MinSizePartitioner(max_shards=8), (1 << 17,), [2]),
    (MinSizePartitioner(), (1 << 17,), [1]),
    (MaxSizePartitioner(4), (6, 1), [6, 1]),
    (MaxSizePartitioner(4, 2), (6, 1), [2, 1]),
    (MaxSizePartitioner(1024), (6, 1), [1, 1]),
    (MaxSizePartitioner(4), (2, 100), [2, 1]),
    (MaxSizePartitioner(4), (5, 0), [1, 1]),
]


@pytest.mark.parametrize(("partitioner", "shape", "expected"), CASES)
def test_parts_along_each_axis(partitioner, shape, expected):
    assert partitioner(shape, np.float32) == expected
    assert partitioner(shape=shape, dtype="float32", axis=0) == expected


def test_another_axis():
    assert FixedShardsPartitioner(4)((2, 9), "int8", axis=1) == [1, 4]
    assert MaxSizePartitioner(2)((2, 9), "int8", axis=-1) == [1, 9]


def test_elements_of_strings_count_as_given():
    for dtype in (str, "S40", object):
        assert MaxSizePartitioner(32, bytes_per_string=8)((8,), dtype) == [2]
        assert MinSizePartitioner(32, 9, bytes_per_string=8)((8,), dtype) == [2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedShardsPartitioner(0),
        lambda: MinSizePartitioner(0),
        lambda: MinSizePartitioner(max_shards=0),
        lambda: MinSizePartitioner(bytes_per_string=0),
        lambda: MaxSizePartitioner(0),
        lambda: MaxSizePartitioner(1, -1),
        lambda: MaxSizePartitioner(1, bytes_per_string=0),
        lambda: FixedShardsPartitioner(2)((), "float32"),
        lambda: MinSizePartitioner()((3,), "float32", axis=1),
    ],
)
def test_what_cannot_be(make):
    with pytest.raises(UsageError, match="expected"):
        make()


def test_what_is_no_number():
    with pytest.raises(ArgumentTypeError, match="num_shards='2'"):
        FixedShardsPartitioner("2")


def test_the_base_has_to_be_completed():
    with pytest.raises(TypeError):
        Partitioner()


# --------------------------------------------------------------------------------------- placement


def test_equal_variables_go_round():
    placement = Placement(3)
    assert [placement.place(4) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert placement.nbytes == [12, 8, 8]


def test_variables_without_elements_go_round_too():
    placement = Placement(2)
    assert [placement.place(0) for _ in range(4)] == [0, 1, 0, 1]


def test_the_server_with_the_fewest_bytes_takes_it():
    placement = Placement(3)
    assert [placement.place(size) for size in (10, 4, 5, 1, 1, 1, 9)] == [0, 1, 2, 1, 2, 1, 2]


def test_parts_are_on_different_servers_whatever_those_have():
    placement = Placement(3)
    placement.place(1000)
    assert sorted(placement.place_parts([8, 8, 8])) == [0, 1, 2]
    assert sorted(placement.place_parts([8] * 7)).count(0) in (2, 3)


@given(st.integers(1, 6), st.lists(st.integers(0, 50), max_size=40))
def test_no_server_has_more_than_the_largest_above_the_least(count, sizes):
    placement = Placement(count)
    for size in sizes:
        placement.place(size)
    assert sum(placement.nbytes) == sum(sizes)
    assert max(placement.nbytes) - min(placement.nbytes) <= max(sizes, default=0)


def test_no_servers():
    with pytest.raises(UsageError, match="num_servers=0"):
        Placement(0)


# ------------------------------------------------------------------------------------------ ranges


def test_b87_div():
    assert list(RowRanges.divide(13, 5)) == [(0, 3), (3, 6), (6, 9), (9, 11), (11, 13)]


lengths = st.one_of(
    st.lists(st.integers(0, 6), min_size=1, max_size=9),
    st.tuples(st.integers(0, 40), st.integers(1, 9)).map(
        lambda given: [stop - start for start, stop in RowRanges.divide(*given)]
    ),
)


@given(lengths, st.integers(0, 2**32 - 1), st.sampled_from([np.int64, np.int8, np.uint32]))
def test_rows_are_routed_and_joined(lengths, seed, dtype):
    ranges = RowRanges(lengths)
    whole = np.arange(ranges.count * 2).reshape(-1, 2)
    random = np.random.default_rng(seed)
    rows = random.integers(0, ranges.count, 0 if ranges.count == 0 else 30).astype(dtype)
    routes = ranges.route(rows)
    assert len(routes) == len(lengths)
    pieces = [part[route.rows] for part, route in zip(ranges.split(whole), routes, strict=True)]
    np.testing.assert_array_equal(joined(routes, pieces, (rows.size, 2)), whole[rows])
    for route, (start, stop) in zip(routes, ranges, strict=True):
        mine = route.take(rows)
        np.testing.assert_array_equal(mine, rows[(rows >= start) & (rows < stop)])
        assert all(ranges.find(row) == list(ranges).index((start, stop)) for row in mine)
