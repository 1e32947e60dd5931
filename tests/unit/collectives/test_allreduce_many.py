"""`allreduce_many` packs arrays into buckets, and refuses lists that it cannot reduce."""

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.collectives.operations.allreduce_many import buckets
from mpistrat.errors import ArgumentTypeError, UsageError


def zeros(*forms):
    return [np.zeros(count, dtype) for count, dtype in forms]


def plan(nbytes, *forms, op="sum"):
    return list(buckets(zeros(*forms), op, nbytes))


def test_one_bucket_a_dtype_in_order_of_appearance():
    forms = [(2, "f4"), (1, "f8"), (3, "f4"), (1, "i8"), (1, "f8")]
    assert plan(1000, *forms) == [[0, 2], [1, 4], [3]]


def test_full_buckets_are_closed_in_order():
    assert plan(40, *[(2, "f8")] * 6) == [[0, 1], [2, 3], [4, 5]]
    assert plan(48, *[(2, "f8")] * 6) == [[0, 1, 2], [3, 4, 5]]


def test_array_larger_than_a_bucket_goes_alone():
    assert plan(16, (1, "f8"), (9, "f8"), (1, "f8"), (1, "f8")) == [[0], [1], [2, 3]]
    assert plan(1, (1, "f8"), (1, "f8")) == [[0], [1]]


def test_dtypes_fill_their_buckets_apart():
    found = plan(16, (2, "f8"), (2, "f4"), (2, "f8"), (2, "f4"))
    assert sorted(found) == [[0], [1, 3], [2]]


def test_bytes_are_those_that_travel():
    # A half is summed as float32, and the mean of an int8 as float64.
    assert plan(16, (2, "f2"), (2, "f2"), (2, "f4")) == [[0, 1], [2]]
    assert plan(16, (1, "i1"), (1, "f8"), (1, "i1"), op="mean") == [[0, 1], [2]]


def test_empty_arrays_and_empty_lists():
    assert plan(8) == []
    assert plan(8, (0, "f8"), (1, "f8"), (0, "f8")) == [[0, 1, 2]]


@pytest.mark.parametrize("nbytes", [1, 24, 100, 10**6])
def test_every_array_is_in_one_bucket(nbytes):
    random = np.random.default_rng(nbytes)
    sources = [
        np.zeros(random.integers(0, 9), random.choice(["f2", "f4", "f8", "i4"])) for _ in range(60)
    ]
    found = list(buckets(sources, "sum", nbytes))
    assert sorted(i for members in found for i in members) == list(range(60))
    for members in found:
        assert members == sorted(members)
        held = [sources[i].size * max(4, sources[i].itemsize) for i in members]
        assert len(held) == 1 or sum(held) <= nbytes or sum(held[:-1]) == 0


def test_results_are_apart_from_each_other_and_from_the_input():
    comm = Communicator()
    sources = zeros((3, "f8"), (3, "f8"))
    first, second = comm.allreduce_many(sources)
    first += 1
    np.testing.assert_array_equal(second, np.zeros(3))
    np.testing.assert_array_equal(sources[0], np.zeros(3))
    assert first.flags.owndata


@pytest.mark.parametrize(
    ("arrays", "kind"), [([1.0, None], ArgumentTypeError), ([1j], UsageError), (3, TypeError)]
)
def test_bad_lists_are_refused(arrays, kind):
    with pytest.raises(kind):
        Communicator().allreduce_many(arrays, "max")


@pytest.mark.parametrize("nbytes", ["big", 1.5, 0, -1])
def test_bad_bucket_sizes_are_refused(nbytes):
    with pytest.raises(UsageError, match="bucket_bytes"):
        Communicator().allreduce_many([1.0, 2.0], bucket_bytes=nbytes)


def test_bucket_size_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("MPISTRAT_FUSION_BYTES", "none")
    with pytest.raises(UsageError, match="MPISTRAT_FUSION_BYTES"):
        Communicator().allreduce_many([1.0])
