"""Rows of divided tables: pulled in one pass, and pushed in memory that a ps reads in place."""

import gc
import os
from itertools import product

import numpy as np
import pytest

from helpers.coordinator.coordination import JOBS, Cast, on_chief
from mpistrat import IndexedSlices, ShardedVariable, Variable
from mpistrat.errors import UsageError
from mpistrat.nn import embedding_lookup
from mpistrat.ps.messages import Assign
from mpistrat.system.liveness import tagged_process
from mpistrat.system.processes import process_tag
from mpistrat.tables.partitioners import FixedShardsPartitioner
from mpistrat.testing.sets import takes_long, with_all

on_jobs = pytest.mark.parametrize("layout", JOBS, ids=str)
NUMPY = {
    "scatter_add": np.add,
    "scatter_sub": np.subtract,
    "scatter_max": np.maximum,
    "scatter_min": np.minimum,
}
# Two and one of them are small enough for messages; the last ones do not fit in the first room.
COUNTS = [0, 1, 100, 3000, 9000, 3000, 30_000]


DTYPES, SHARDS = ("float32", "int16", "float64"), (1, 2, 5)
# Each with some of the others: how rows are divided does not depend on their dtype.
PAIRS = tuple(product(DTYPES, SHARDS) if with_all() else zip(DTYPES, SHARDS, strict=True))


@takes_long()
@on_jobs
@pytest.mark.parametrize(("dtype", "shards"), PAIRS)
def test_pushes_and_pulls_of_all_sizes(layout, shards, dtype):
    """Many rows come several times; whole numbers are exact in every dtype and order."""

    @on_chief(layout, FixedShardsPartitioner(shards))
    def _(strategy, coordinator):
        with strategy.scope():
            table = Variable(np.zeros((1001, 24), dtype))
        assert isinstance(table, ShardedVariable) == (shards > 1)

        def change():
            draw = np.random.default_rng(7)
            expected = np.zeros((1001, 24), dtype)
            for count in COUNTS:
                rows = draw.integers(0, 1001, count)
                for method in ("scatter_add", "scatter_sub", "scatter_max", "scatter_min"):
                    values = draw.integers(-9, 10, (count, 24)).astype(dtype)
                    getattr(table, method)(IndexedSlices(values, rows))
                    NUMPY[method].at(expected, rows, values)
                np.testing.assert_array_equal(embedding_lookup(table, rows), expected[rows])
            return expected

        expected = coordinator.schedule(change).fetch()
        np.testing.assert_array_equal(table.numpy(), expected)


@on_jobs
def test_the_last_of_a_row_that_is_set_twice_counts(layout):
    @on_chief(layout, FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            table = Variable(np.zeros((50, 64)))

        def change():
            rows = np.random.default_rng(3).integers(0, 50, 5000)
            table.scatter_update(IndexedSlices(np.arange(5000.0 * 64).reshape(5000, 64), rows))
            return rows

        rows = coordinator.schedule(change).fetch()
        for row in range(50):
            (places,) = np.nonzero(rows == row)
            assert table[row][0] == 64 * places[-1]


@on_jobs
def test_what_comes_from_a_part_is_of_one_version(layout):
    """All rows get 1 more at once, so all that are pulled from a part are alike."""

    @on_chief(layout, FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            table = Variable(np.zeros((600, 64)))

        def push():
            for _ in range(20):
                table.scatter_add(IndexedSlices(np.ones((600, 64)), np.arange(600)))

        def pull():
            rows = np.random.default_rng(1).integers(0, 600, 500)
            for _ in range(20):
                found = embedding_lookup(table, rows)
                for part in (found[rows < 300], found[rows >= 300]):
                    assert (part == part[0, 0]).all()

        for _ in range(4):
            coordinator.schedule(push)
            coordinator.schedule(pull)
        coordinator.join()
        assert (table.numpy() == 80).all()


@on_jobs
def test_what_is_read_has_what_was_pushed_before(layout):
    @on_chief(layout, FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            table = Variable(np.zeros((4, 1000)))

        def step():
            for number in range(1, 50):
                table.scatter_add(IndexedSlices(np.ones((40, 1000)), np.arange(40) % 4))
                assert (embedding_lookup(table, [3, 0]) == 10 * number).all()
            return True

        assert coordinator.schedule(step).fetch()


def descriptors():
    """Return what this process has open, but for the folder that says so."""
    folder = "/proc/self/fd"
    open_ones = [f"{folder}/{number}" for number in os.listdir(folder)]
    return sorted(os.readlink(one) for one in open_ones if os.path.lexists(one))


def test_a_closed_strategy_gives_its_memory_back_at_once():
    tagged_process.has_ended(process_tag.my_tag())  # what is watched, stays
    gc.collect()
    before = descriptors()
    gc.disable()
    try:

        @on_chief(Cast(1, 2, 2), FixedShardsPartitioner(2))
        def _(strategy, coordinator):
            with strategy.scope():
                table = Variable(np.zeros((5000, 8)))
            rows = IndexedSlices(np.ones((5000, 8)), np.arange(5000))

            def push():
                table.scatter_add(rows)
                return table.numpy().sum()

            for _ in range(4):
                table.scatter_add(rows)
                coordinator.schedule(push)
            coordinator.join()
            assert (table.numpy() == 8.0).all()

        assert descriptors() == before
    finally:
        gc.enable()


@on_jobs
def test_wrong_rows_are_refused_before_anything_is_sent(layout):
    @on_chief(layout, FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            table = Variable(np.zeros((9, 2)))
        for wrong in (9, -1):
            with pytest.raises(UsageError, match="expected 0 to 8"):
                embedding_lookup(table, [0, wrong])
            with pytest.raises(UsageError, match="expected 0 to 8"):
                table.scatter_add(IndexedSlices(np.ones((2, 2)), [0, wrong]))
        assert not table.numpy().any()


@on_jobs
def test_tables_of_several_dtypes_are_refused(layout):
    @on_chief(layout)
    def _(strategy, coordinator):
        with strategy.scope():
            parts = [Variable(np.ones((2, 4), dtype)) for dtype in ("float32", "int32")]
        with pytest.raises(UsageError, match="expected one dtype"):
            embedding_lookup(parts, [0, 3])


def test_a_push_that_an_earlier_error_stops_can_be_made_again():
    @on_chief(Cast(1, 1, 2), FixedShardsPartitioner(2))
    def _(strategy, coordinator):
        with strategy.scope():
            table = Variable(np.zeros((6, 64)))
        client, rows = strategy.extended.client, np.arange(3000) % 6
        slices = IndexedSlices(np.ones((3000, 64)), rows)
        for _ in range(3):
            client.tell(1, Assign(999, np.zeros(3)))
            with pytest.raises(UsageError, match="no variable 999"):
                table.scatter_add(slices)
        for _ in range(2):
            table.scatter_add(slices)
        assert (table.numpy() == 1000).all()
        outgoing = [client.outgoing_rows(ps, 1500, (64,), table.dtype) for ps in (0, 0, 1, 1)]
        assert [one.buffered is None for one in outgoing] == [False] * 4  # no buffer was lost
