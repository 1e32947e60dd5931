"""Data sets of which each rank has its own (policy OFF), and policies that are refused."""

import numpy as np
import pytest

from helpers.strategy.input_ranks import Ranks, distribute
from mpistrat.data import AutoShardPolicy, Dataset
from mpistrat.errors import UsageError
from mpistrat.strategy.input.distributed import DistributedDataset
from mpistrat.strategy.input.input_context import InputOptions

OFF = InputOptions(auto_shard_policy=AutoShardPolicy.OFF)


def test_b61_off_keeps_each_ranks_data_and_still_splits():
    got = distribute(lambda rank: Dataset.range(rank * 100, rank * 100 + 8).batch(4), 2, 1, OFF)
    assert got == [[[i, i + 1], [100 + i, 101 + i]] for i in (0, 2, 4, 6)]
    within = distribute(lambda rank: Dataset.range(8).batch(8), 2, 2, OFF)
    assert within == [[[0, 1], [2, 3], [0, 1], [2, 3]], [[4, 5], [6, 7], [4, 5], [6, 7]]]


def test_off_with_unequal_ends_fills_with_empties():
    got = distribute(lambda rank: Dataset.range(2 + 4 * rank).batch(2), 2, 1, OFF)
    assert got[:2] == [[[0], [0]], [[1], [1]]]
    assert got[2:] == [[[], [2]], [[], [3]], [[], [4]], [[], [5]]]


def test_off_with_an_empty_rank_uses_its_spec():
    def body(rank, workers):
        data = np.ones((3 * rank, 5), np.float32)
        dataset = Dataset.from_tensor_slices(data).batch(2)
        return [(x.shape, x.dtype.name) for x in DistributedDataset(dataset, workers, OFF)]

    empty, full = Ranks(2).run(body)
    assert empty == [((0, 5), "float32")] * 4
    assert full == [((1, 5), "float32")] * 3 + [((0, 5), "float32")]


def test_off_with_an_empty_rank_and_no_spec_is_an_error_after_the_agreement():
    def body(rank, workers):
        data = [] if rank == 0 else [np.arange(2)]
        iterator = iter(DistributedDataset(data, workers, OFF))
        try:
            return next(iterator).tolist()
        except UsageError as error:
            return str(error)

    message, value = Ranks(2).run(body)
    assert "rank 0/2" in message
    assert "element_spec" in message
    assert value == [0]


@pytest.mark.parametrize("policy", [AutoShardPolicy.FILE, AutoShardPolicy.HINT])
def test_file_policies_are_refused(policy):
    options = InputOptions(auto_shard_policy=policy)
    with pytest.raises(UsageError, match=policy.name):
        DistributedDataset(np.zeros((2, 2)), Ranks().workers(0), options)
