"""Distributed data sets: who gets which rows, on one rank and on several."""

import gc
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpistrat.data import ArraySpec, AutoShardPolicy, Dataset
from mpistrat.errors import ArgumentTypeError, UsageError
from mpistrat.strategy.input.distributed import (
    DistributedDataset,
    DistributedDatasetsFromFunction,
    DistributedIterator,
    InputIterator,
    InputWorkers,
    make_numpy_dataset,
)
from mpistrat.strategy.input.input_context import (
    InputContext,
    InputOptions,
    InputReplicationMode,
    RunOptions,
    ValueContext,
)
from mpistrat.strategy.values import PerReplica, regroup

OFF = InputOptions(auto_shard_policy=AutoShardPolicy.OFF)
PER_REPLICA = InputOptions(experimental_replication_mode=InputReplicationMode.PER_REPLICA)
DEADLINE_S = 10.0


class Ranks:
    """Ranks as threads, with a real agreement on whether any of them has data."""

    def __init__(self, ranks=1, local=1):
        self.ranks, self.local = ranks, local
        self.barrier = threading.Barrier(ranks)
        self.flags = [False] * ranks
        self.agreements = 0

    def workers(self, rank):
        def any_has_data(flag):
            self.flags[rank] = flag
            if self.barrier.wait(DEADLINE_S) == 0:
                self.agreements += 1
            result = any(self.flags)
            self.barrier.wait(DEADLINE_S)
            return result

        return InputWorkers(
            num_replicas=self.ranks * self.local,
            first_replica=rank * self.local,
            num_local=self.local,
            num_pipelines=self.ranks,
            pipeline_id=rank,
            regroup=regroup,
            any_has_data=any_has_data,
        )

    def run(self, body):
        """Return what ``body(rank, workers)`` returns on each rank."""
        with ThreadPoolExecutor(self.ranks) as pool:
            futures = [pool.submit(body, r, self.workers(r)) for r in range(self.ranks)]
            return [future.result(DEADLINE_S) for future in futures]


def local(value):
    """Return a list over the local replicas of a step."""
    values = value.values if isinstance(value, PerReplica) else (value,)
    return [np.asarray(v).tolist() for v in values]


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


def steps(distributed):
    return [local(step) for step in distributed]


def distribute(data, ranks=1, replicas=1, options=None):
    """Return, for each step, the values of all replicas in order."""

    def body(rank, workers):
        own = data(rank) if callable(data) else data
        return steps(DistributedDataset(own, workers, options))

    results = Ranks(ranks, replicas).run(body)
    assert len({len(result) for result in results}) == 1, "the ranks took unequal steps"
    return [flat(parts) for parts in zip(*results, strict=True)]


def from_function(dataset_fn, ranks=1, replicas=1, options=None):
    def body(rank, workers):
        return steps(DistributedDatasetsFromFunction(dataset_fn, workers, options))

    results = Ranks(ranks, replicas).run(body)
    assert len({len(result) for result in results}) == 1, "the ranks took unequal steps"
    return [flat(parts) for parts in zip(*results, strict=True)]


GRIDS = pytest.mark.parametrize(("ranks", "replicas"), [(1, 2), (2, 1)])

# -------------------------------------------------------------- experimental_distribute_dataset


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


@pytest.mark.parametrize("policy", [AutoShardPolicy.FILE, AutoShardPolicy.HINT])
def test_file_policies_are_refused(policy):
    options = InputOptions(auto_shard_policy=policy)
    with pytest.raises(UsageError, match=policy.name):
        DistributedDataset(np.zeros((2, 2)), Ranks().workers(0), options)


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


# ------------------------------------------------------------------------------ from a function


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


# ------------------------------------------------------------------------------------ iterators


def test_iterators_start_again():
    distributed = DistributedDataset(Dataset.range(4).batch(2), Ranks(1, 2).workers(0))
    iterator = iter(distributed)
    assert isinstance(iterator, DistributedIterator)
    assert local(iterator.get_next()) == [[0], [1]]
    assert steps(iterator) == [[[2], [3]]]
    with pytest.raises(StopIteration):
        iterator.get_next()
    assert len(steps(distributed)) == 2


def test_b69_e29_input_iterator():
    distributed = DistributedDataset(Dataset.range(5).batch(2), Ranks(1, 2).workers(0))
    iterator = InputIterator(distributed)
    assert local(iterator.get_next()) == [[0], [1]]  # without initialize: eager semantics
    assert iterator.initialize() == []
    assert steps(iterator) == [[[0], [1]], [[2], [3]], [[4], []]]
    with pytest.raises(StopIteration):
        iterator.get_next()
    assert iterator.initializer == []
    assert local(next(iterator)) == [[0], [1]]
    assert iterator.element_spec.values == distributed.element_spec.values


def test_errors_of_the_data_reach_the_caller_once():
    def generate():
        yield np.arange(2)
        raise OSError("disk gone")

    for buffer in (0, 1):
        options = InputOptions(experimental_per_replica_buffer_size=buffer)
        workers = Ranks(1, 2).workers(0)
        iterator = iter(DistributedDataset(Dataset.from_generator(generate), workers, options))
        assert local(next(iterator)) == [[0], [1]]
        with pytest.raises(OSError, match="disk gone"):
            next(iterator)
        with pytest.raises(StopIteration):
            next(iterator)


@pytest.mark.parametrize(("replicas", "size", "ahead"), [(1, 1, 1), (2, 1, 2), (2, 3, 6)])
def test_b60_prefetches_as_many_steps_as_local_replicas(replicas, size, ahead):
    made = []

    def generate():
        for i in range(50):
            made.append(i)
            yield np.arange(replicas)

    options = InputOptions(experimental_per_replica_buffer_size=size)
    workers = Ranks(1, replicas).workers(0)
    iterator = iter(DistributedDataset(Dataset.from_generator(generate), workers, options))
    end = time.monotonic() + DEADLINE_S
    while len(made) < ahead + 1 and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(0.02)
    assert len(made) == ahead + 1
    next(iterator)


def test_dropped_iterators_leave_no_thread():
    distributed = DistributedDataset(Dataset.range(4).batch(2).repeat(), Ranks(1, 2).workers(0))
    for _ in range(3):
        for _step in distributed:
            break
    gc.collect()
    end = time.monotonic() + DEADLINE_S
    while any(t.name == "mpistrat-prefetch" for t in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.002)


def test_the_agreement_is_made_in_the_callers_thread():
    seen = set()
    workers = InputWorkers(
        4, 0, 2, 2, 0, regroup, lambda flag: seen.add(threading.current_thread()) or flag
    )
    steps(DistributedDatasetsFromFunction(lambda c: Dataset.range(8).batch(2), workers))
    assert seen == {threading.main_thread()}


# ------------------------------------------------------------------- contexts, options, numpy


def test_b65_input_context():
    context = InputContext(2, 1, 4)
    assert (context.num_input_pipelines, context.input_pipeline_id) == (2, 1)
    assert context.get_per_replica_batch_size(8) == 2
    with pytest.raises(ValueError, match=r"global_batch_size=6 is not divisible .* such as 8"):
        context.get_per_replica_batch_size(6)
    default = InputContext()
    assert (default.num_input_pipelines, default.input_pipeline_id) == (1, 0)


def test_b50_value_context():
    context = ValueContext(1, 2)
    assert (context.replica_id_in_sync_group, context.num_replicas_in_sync) == (1, 2)
    assert str(context) == "mpistrat.ValueContext(replica id 1, total replicas in sync: 2)"


def test_b25_options():
    assert RunOptions() == (True, False, None)
    assert RunOptions._fields[0] == "experimental_enable_dynamic_batch_size"
    options = InputOptions()
    assert options.experimental_fetch_to_device is True
    assert options.experimental_replication_mode is InputReplicationMode.PER_WORKER
    assert options.experimental_place_dataset_on_device is False
    assert options.experimental_per_replica_buffer_size == 1
    assert options.auto_shard_policy is AutoShardPolicy.AUTO
    assert InputOptions(auto_shard_policy=2).auto_shard_policy is AutoShardPolicy.DATA
    assert {p.name: p.value for p in AutoShardPolicy} == {
        "OFF": -1,
        "AUTO": 0,
        "FILE": 1,
        "DATA": 2,
        "HINT": 3,
    }
    assert InputReplicationMode("PER_REPLICA") is InputReplicationMode.PER_REPLICA


@pytest.mark.parametrize(
    "keywords",
    [
        {"experimental_replication_mode": "PER_WORKER"},
        {"experimental_per_replica_buffer_size": -1},
        {"experimental_per_replica_buffer_size": 1.5},
        {"auto_shard_policy": 7},
    ],
)
def test_bad_options(keywords):
    with pytest.raises((UsageError, ArgumentTypeError), match="expected"):
        InputOptions(**keywords)


def test_b70_e4_make_numpy_dataset():
    ones = make_numpy_dataset(np.ones([10], np.float32))
    assert [float(v) for v in ones] == [1.0] * 10
    assert distribute(ones) == [[1.0]] * 10
    assert distribute(ones.batch(4), 1, 2)[-1] == [[1.0], [1.0]]
    stacked = make_numpy_dataset([np.ones(3), np.zeros(3)])
    assert [row.tolist() for row in stacked] == [[1.0] * 3, [0.0] * 3]
    assert list(make_numpy_dataset((np.ones(2), {"a": np.zeros(2)}))) == [(1.0, {"a": 0.0})] * 2
    assert len(make_numpy_dataset((np.ones(2), [np.ones(3), np.zeros(3)]))) == 2
    for bad in (
        {"a": [np.ones(3), np.ones(3)]},
        (np.zeros(2), {"b": {"a": [np.ones(3)]}}),
        (np.ones(3), np.ones(2)),
        np.float32(1),
    ):
        with pytest.raises(ValueError, match=r"expected|differ"):
            make_numpy_dataset(bad)
