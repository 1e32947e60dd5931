"""Data sets cut by experimental_distribute_dataset: who gets which rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.strategy.input_ranks import Ranks, distribute, flat, local, steps
from mpistrat import MirroredStrategy
from mpistrat.data import ArraySpec, AutoShardPolicy, Dataset
from mpistrat.errors import UsageError
from mpistrat.strategy.input.distributed import DistributedDataset
from mpistrat.strategy.input.input_context import InputOptions
from mpistrat.strategy.values import PerReplica

OFF = InputOptions(auto_shard_policy=AutoShardPolicy.OFF)
GRIDS = pytest.mark.parametrize(("ranks", "replicas"), [(1, 2), (2, 1)])


@GRIDS
def test_e3_global_batches_are_cut(ranks, replicas):
    assert distribute(Dataset.range(4).batch(2), ranks, replicas) == [[[0], [1]], [[2], [3]]]


@GRIDS
def test_b67_the_last_batch_may_be_partial(ranks, replicas):
    five = distribute(Dataset.range(5).batch(2), ranks, replicas)
    assert five == [[[0], [1]], [[2], [3]], [[4], []]]
    fourteen = distribute(Dataset.range(14).batch(8), ranks, replicas)
    assert fourteen == [[[0, 1, 2, 3], [4, 5, 6, 7]], [[8, 9, 10], [11, 12, 13]]]


@settings(deadline=None, max_examples=30)
@given(
    rows=st.integers(0, 40),
    batch=st.integers(1, 15),
    ranks=st.integers(1, 3),
    replicas=st.integers(1, 3),
    buffer=st.integers(0, 2),
)
def test_b60_replicas_share_every_batch_in_order(rows, batch, ranks, replicas, buffer):
    options = InputOptions(experimental_per_replica_buffer_size=buffer)
    dataset = Dataset.range(rows).batch(batch)
    got = distribute(dataset, ranks, replicas, options)
    assert [flat(step) for step in got] == [b.tolist() for b in dataset]
    for step in got:
        sizes = [len(piece) for piece in step]
        assert max(sizes) - min(sizes) <= 1


def test_data_sharding_needs_no_agreement():
    ranks = Ranks(2)
    ranks.run(lambda rank, workers: steps(DistributedDataset(Dataset.range(9).batch(4), workers)))
    assert ranks.agreements == 0


def test_foreign_data_sets_arrays_and_nests():
    batches = [np.arange(4), np.arange(4, 7)]
    assert distribute(batches, 1, 2) == [[[0, 1], [2, 3]], [[4, 5], [6]]]
    assert distribute([[1, 2], [3, 4]], 1, 2) == [[[1], [2]], [[3], [4]]]
    assert distribute(np.arange(8).reshape(2, 4), 2, 1) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    workers = Ranks(1, 2).workers(0)
    data = ({"x": np.arange(8).reshape(2, 4)}, np.zeros((2, 4)))
    (x, y), _ = list(DistributedDataset(data, workers))
    assert local(x["x"]) == [[0, 1], [2, 3]]
    assert local(y) == [[0.0, 0.0], [0.0, 0.0]]


def test_shuffled_epochs_agree_and_differ():
    def body(rank, workers):
        dataset = Dataset.range(40).shuffle(seed=4).batch(8)
        if rank:
            list(dataset)  # a look at the data on one rank only must not matter
        distributed = DistributedDataset(dataset, workers)
        return [steps(distributed) for _ in range(2)]

    left, right = Ranks(2).run(body)
    epochs = [
        [a[0] + b[0] for a, b in zip(left[epoch], right[epoch], strict=True)] for epoch in (0, 1)
    ]
    assert all(sorted(flat(epoch)) == list(range(40)) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_a_rank_fetches_its_own_rows_only():
    fetched = []

    class Watched(np.ndarray):
        def take(self, indices, *args, **kwargs):
            fetched.append(len(indices))
            return super().take(indices, *args, **kwargs)

    data = np.arange(64.0).view(Watched)
    workers = Ranks(4).workers(2)
    dataset = DistributedDataset(Dataset.from_tensor_slices(data).shuffle().batch(32), workers)
    assert [len(step) for step in dataset] == [8, 8]
    assert fetched == [8, 8]


def test_one_replica_gets_everything_unchanged():
    assert distribute(Dataset.range(3)) == [[0], [1], [2]]
    assert distribute([{"a": 1}, "text"]) == [[{"a": 1}], ["text"]]
    assert distribute(Dataset.range(5).batch(2)) == [[[0, 1]], [[2, 3]], [[4]]]


def test_unbatched_elements_of_several_replicas_say_what_to_do():
    dataset = DistributedDataset(Dataset.range(3), Ranks(1, 2).workers(0))
    with pytest.raises(ValueError, match=r"\.batch\(global_batch_size\)"):
        next(iter(dataset))
    unequal = DistributedDataset([(np.zeros(4), np.zeros(5))], Ranks(1, 2).workers(0))
    with pytest.raises(ValueError, match="4, 5"):
        next(iter(unequal))


def test_what_is_no_data_set_is_refused():
    once = "only once"
    for data, words in ((iter([1]), once), ((x for x in [1]), once), (3, "no data set")):
        with pytest.raises(TypeError, match=words):
            DistributedDataset(data, Ranks().workers(0))
    with pytest.raises(TypeError, match="InputOptions"):
        DistributedDataset([1], Ranks().workers(0), {"policy": 1})


def test_b62_no_further_transforms():
    distributed = DistributedDataset(Dataset.range(4).batch(2), Ranks().workers(0))
    for name in ("map", "batch", "shuffle", "repeat"):
        with pytest.raises(AttributeError):
            getattr(distributed, name)
    assert bool(distributed)


def test_b63_element_spec():
    dataset = Dataset.from_tensor_slices({"x": np.zeros((4, 3), np.float32)}).batch(2, True)
    one, two = Ranks(1, 1).workers(0), Ranks(1, 2).workers(0)
    assert DistributedDataset(dataset, one).element_spec == {"x": ArraySpec((2, 3), "f4")}
    spec = DistributedDataset(dataset, two).element_spec["x"]
    assert isinstance(spec, PerReplica)
    assert spec.values == (ArraySpec((None, 3), np.float32),) * 2
    assert iter(DistributedDataset(dataset, two)).element_spec["x"].values == spec.values
    assert DistributedDataset([np.zeros(3)], Ranks(2).workers(0)).element_spec == ArraySpec(
        (None,), float
    )
    with pytest.raises(UsageError, match="no element"):
        DistributedDataset([], one).element_spec  # noqa: B018


def test_lengths():
    dataset = Dataset.range(9).batch(2)
    assert len(DistributedDataset(dataset, Ranks(2).workers(0))) == 5
    assert len(DistributedDataset(dataset, Ranks(1, 2).workers(0), OFF)) == 5
    with pytest.raises(TypeError, match="different"):
        len(DistributedDataset(dataset, Ranks(2).workers(0), OFF))
    with pytest.raises(TypeError, match="not known"):
        len(DistributedDataset(dataset.repeat(), Ranks().workers(0)))


@pytest.mark.parametrize("devices", [["CPU:0"], ["CPU:0", "CPU:1"]])
def test_none_in_an_element_stays_none(devices):
    with MirroredStrategy(devices) as strategy:
        (batch,) = strategy.experimental_distribute_dataset([(np.arange(4), None)])
        assert strategy.experimental_local_results(batch[1]) == (None,) * len(devices)
