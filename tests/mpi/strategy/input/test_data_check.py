"""Arrays that ranks divide among themselves have to be the same, in one order."""

import numpy as np
import pytest

from helpers.mistakes import refused, usable_after
from mpistrat import CentralStorageStrategy, InputOptions
from mpistrat.data import AutoShardPolicy, Dataset
from mpistrat.errors import MpistratError, UsageError

pytestmark = pytest.mark.mpi(ranks=2)

X, LABELS = np.linspace(-1, 1, 300).reshape(100, 3), np.arange(100) % 7


def permuted(rank):
    return np.random.default_rng(rank).permutation(100)


DIFFERENT = {
    "another order of floats": (lambda rank: X[permuted(rank)], "some rows have other values"),
    "another order of integers": (
        lambda rank: LABELS[permuted(rank)],
        "some rows have other values",
    ),
    "one component": (lambda rank: (X, LABELS + rank), "some rows have other values"),
    "other numbers of rows": (lambda rank: X[: 100 - rank], r"99 rows of \*: float64 \(3,\), in"),
    "other dtypes": (lambda rank: X.astype(("f8", "f4")[rank]), r"float32 \(3,\), in place of"),
    "other nests": (lambda rank: ({"a": X}, {"b": X})[rank], "'b'"),
    "another seed": (
        lambda rank: Dataset.from_tensor_slices(X).shuffle(100, seed=rank).batch(10),
        "the first rows come in another order",
    ),
    "other batches": (
        lambda rank: Dataset.from_tensor_slices(X).batch(4 + rank),
        "the first rows come in another order",
    ),
    "mapped": (
        lambda rank: Dataset.from_tensor_slices(X[permuted(rank)]).map(lambda x: 2 * x).batch(4),
        "some rows have other values",
    ),
    "lists of batches": (lambda rank: [X[:50], X[50:] + rank], "some rows have other values"),
    "shorter lists": (lambda rank: [X, X][rank:], "1 elements of"),
    "no arrays on one rank": (
        lambda rank: X if rank else Dataset.from_generator(lambda: iter(X)),
        "only one of them has arrays",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_an_error_on_all_ranks(name):
    make, told = DIFFERENT[name]
    with usable_after() as (strategy, rank, _):
        with refused(UsageError, rf"rank 1 has other data than rank 0: .*{told}") as caught:
            strategy.experimental_distribute_dataset(make(rank))
        assert "give what shuffles or splits a seed" in str(caught.value)


class SomeRows:
    """Has rows, which it gives by numbers and slices only, and no dtype."""

    shape = (100, 2)

    def __len__(self):
        return 100

    def __getitem__(self, key):
        if not isinstance(key, (int, slice)):
            raise TypeError("only numbers and slices")
        return np.ones((100, 2))[key]


def _with_gaps(rank):
    found = np.frombuffer(bytes([rank] * 32), np.dtype("i1,f8", align=True)).copy()
    found["f0"], found["f1"] = 1, 2.0
    return found


ALIKE = {
    "arrays": lambda rank: (X, {"y": LABELS}),
    "the last bits of floats": lambda rank: X * (1 + 1e-9 * rank),
    "numbers that are none": lambda rank: np.where(X > 0.9, np.nan, np.where(X < -0.9, np.inf, X)),
    "numbers whose sums have no end": lambda rank: np.full((20, 2), -1e308),
    "objects": lambda rank: [np.array([[1], [2, 3]], dtype=object)] * 2,
    "structures with gaps": lambda rank: [_with_gaps(rank)],
    "what is an array in part": lambda rank: Dataset.from_tensor_slices(SomeRows()).batch(4),
    "no rows": lambda rank: X[:0],
    "one row": lambda rank: X[:1],
    "None": lambda rank: [(X, None)],
    "an empty list": lambda rank: [],
    "strings": lambda rank: np.array(["a", "b"]),
    "one seed": lambda rank: Dataset.from_tensor_slices(X).shuffle(50, seed=3).batch(10).repeat(),
    "a generator, which is not looked at": lambda rank: Dataset.from_generator(
        lambda: iter([X + rank])
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_alike_is_taken(name):
    with usable_after() as (strategy, rank, _):
        strategy.experimental_distribute_dataset(ALIKE[name](rank))


def test_data_of_their_own_are_not_compared():
    with usable_after() as (strategy, rank, _):
        own = InputOptions(auto_shard_policy=AutoShardPolicy.OFF)
        strategy.experimental_distribute_dataset(X[rank:], own)
        strategy.distribute_datasets_from_function(lambda _: Dataset.from_tensor_slices(X + rank))


def test_nothing_is_read_twice_and_no_generator_is_begun():
    with usable_after() as (strategy, _, _):
        begun, seen = [], []
        generated = Dataset.from_generator(lambda: begun.append(1) or iter([X]))
        mapped = Dataset.from_tensor_slices(X).map(lambda x: seen.append(1) or x).batch(4)
        for data in (generated, mapped):
            strategy.experimental_distribute_dataset(data)
        assert not begun
        assert not seen


def test_central_storage():
    with CentralStorageStrategy() as strategy:
        rank = strategy.communicator.rank
        with refused(UsageError, "rank 1 has other data than rank 0"):
            strategy.experimental_distribute_dataset(X[permuted(rank)])


def test_an_error_of_one_rank_is_one_of_all():
    class Fails(list):
        def __getitem__(self, key):
            raise OSError("the disk is gone")

    with usable_after() as (strategy, rank, _):
        data = Fails([X, X]) if rank else [X, X]
        with refused((OSError, MpistratError), "the disk is gone"):
            strategy.experimental_distribute_dataset(data)
