"""Data sets made by a function on each rank, or for each replica: unequal ends, bad returns."""

import numpy as np
import pytest

from helpers.strategy.input_ranks import Ranks, from_function, local, steps
from mpistrat.data import Dataset
from mpistrat.strategy.input.distributed import DistributedDatasetsFromFunction
from mpistrat.strategy.input.input_context import InputOptions, InputReplicationMode

PER_REPLICA = InputOptions(experimental_replication_mode=InputReplicationMode.PER_REPLICA)


def test_b64_each_local_replica_takes_a_batch():
    contexts = []

    def dataset_fn(context):
        contexts.append(context)
        return Dataset.range(6).batch(2)

    assert from_function(dataset_fn, 1, 2) == [[[0, 1], [2, 3]], [[4, 5], []]]
    assert len(contexts) == 1
    assert str(contexts[0]) == "mpistrat.InputContext(input pipeline id 0, total: 1)"


def test_b64_the_function_is_called_once_a_rank():
    def dataset_fn(context):
        assert context.num_replicas_in_sync == 4
        return (
            Dataset.range(8).batch(2).shard(context.num_input_pipelines, context.input_pipeline_id)
        )

    assert from_function(dataset_fn, 2, 2) == [[[0, 1], [4, 5], [2, 3], [6, 7]]]


@pytest.mark.parametrize(("ranks", "replicas"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_e27_from_tensors(ranks, replicas):
    def dataset_fn(context):
        size = context.get_per_replica_batch_size(8)
        dataset = Dataset.from_tensors([[1.0]]).repeat().batch(size)
        return dataset.shard(context.num_input_pipelines, context.input_pipeline_id)

    def body(rank, workers):
        return next(iter(DistributedDatasetsFromFunction(dataset_fn, workers)))

    for step in Ranks(ranks, replicas).run(body):
        assert len(local(step)) == replicas
        assert np.shape(local(step)[0]) == (8 // (ranks * replicas), 1, 1)


def test_unequal_ends_over_ranks_are_agreed_on():
    ranks = Ranks(2)

    def body(rank, workers):
        distributed = DistributedDatasetsFromFunction(
            lambda context: Dataset.range(2 + 4 * context.input_pipeline_id).batch(2), workers
        )
        iterator = iter(distributed)
        taken = steps(iterator)
        assert next(iterator, None) is None  # no further collective: the end was agreed
        return taken

    short, long = ranks.run(body)
    assert short == [[[0, 1]], [[]], [[]]]
    assert long == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert ranks.agreements == 4


def test_elements_without_rows_end_with_the_first_replica_that_runs_dry():
    assert from_function(lambda c: Dataset.range(5), 1, 2) == [[0, 1], [2, 3]]
    sizes = [3, 1]
    assert from_function(lambda c: Dataset.range(sizes[c.input_pipeline_id]), 2) == [[0, 0]]


def test_per_replica_mode_calls_once_for_each_replica():
    def dataset_fn(context):
        assert context.num_input_pipelines == 4
        first = context.input_pipeline_id * 10
        return Dataset.range(first, first + 2 + context.input_pipeline_id).batch(2)

    assert from_function(dataset_fn, 2, 2, PER_REPLICA) == [
        [[0, 1], [10, 11], [20, 21], [30, 31]],
        [[], [12], [22, 23], [32, 33]],
        [[], [], [], [34]],
    ]


def test_functions_that_return_the_next_batch():
    counter = iter(range(100))
    workers = Ranks(1, 2).workers(0)
    distributed = DistributedDatasetsFromFunction(
        lambda c: lambda: np.array([next(counter)]), workers, InputOptions()
    )
    assert local(next(iter(distributed))) == [[0], [1]]


def test_what_a_function_may_not_return():
    workers = Ranks().workers(0)
    with pytest.raises(TypeError, match="only once"):
        DistributedDatasetsFromFunction(lambda c: (x for x in [1]), workers)
    with pytest.raises(TypeError, match="no data set"):
        DistributedDatasetsFromFunction(lambda c: None, workers)
    with pytest.raises(TypeError, match="experimental_distribute_dataset"):
        DistributedDatasetsFromFunction(Dataset.range(3), workers)


def test_lengths_from_functions():
    def make(n):
        return lambda c: Dataset.range(n).batch(2)

    assert len(DistributedDatasetsFromFunction(make(9), Ranks(1, 2).workers(0))) == 3
    assert len(DistributedDatasetsFromFunction(make(9), Ranks(1, 2).workers(0), PER_REPLICA)) == 5
    with pytest.raises(TypeError, match="different"):
        len(DistributedDatasetsFromFunction(make(9), Ranks(2).workers(0)))
