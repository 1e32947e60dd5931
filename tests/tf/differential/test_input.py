"""Data sets on replicas, as TensorFlow distributes them (B60 to B63, B67, E1, E3, E4, E26)."""

import tempfile
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

from helpers.tf.cases import (  # noqa: E402
    EVERYWHERE,
    SPREAD,
    Rows,
    raised,
    same,
    steady,
)
from helpers.tf.process import four_cpus  # noqa: E402 - TensorFlow may be missing
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

Policy = tf.data.experimental.AutoShardPolicy
# The ranks' first replicas have the first rows, as under MultiWorkerMirroredStrategy: on two ranks
# of two, which replica has which rows of a step is not as in TensorFlow's one process.
IN_ORDER = [case for case in EVERYWHERE if case.ranks == 1 or case.devices == 1]


def sharded(dataset, policy):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return steady(dataset).with_options(options)


def numbers(count, batch, policy=Policy.AUTO, **how):
    return sharded(tf.data.Dataset.range(count).batch(batch, **how), policy)


def by_replica(s, dataset, options=None):
    """Return what each step gives to each replica."""
    return list(s.experimental_distribute_dataset(dataset, options))


def by_step(batches):
    """Return the rows of each step, of all replicas."""
    return [Rows([batch]) for batch in batches]


@takes_long()
@same(IN_ORDER)
def test_b60_global_batches_are_cut(s):
    return [by_replica(s, numbers(8, 4)), by_replica(s, numbers(9, 4, drop_remainder=True))]


@takes_long()
@same()
def test_b60_rows_of_a_step(s):
    return by_step(by_replica(s, numbers(16, 8)))


@takes_long()
@same(IN_ORDER)
def test_b67_last_partial_batches(s):
    return [by_replica(s, numbers(5, 2)), by_replica(s, numbers(14, 8))]


@takes_long()
@same()
def test_b67_rows_of_last_steps(s):
    return [by_step(by_replica(s, numbers(*of))) for of in [(5, 4), (13, 8), (1, 4)]]


@takes_long()
@same()
def test_b67_in_a_graph(s):
    @tf.function
    def epoch(dataset):
        total, count = tf.constant(0, tf.int64), tf.constant(0)
        for batch in dataset:
            mine = s.run(lambda x: (tf.reduce_sum(x), tf.size(x)), args=(batch,))
            total += s.reduce("SUM", mine[0], axis=None)
            count += s.reduce("SUM", mine[1], axis=None)
        return total, count

    return epoch(s.experimental_distribute_dataset(numbers(13, 8)))


@takes_long()
@same()
def test_b61_sharding_by_data(s):
    return by_step(by_replica(s, numbers(8, 4, Policy.DATA)))


@pytest.mark.parametrize("layout", SPREAD, ids=str)
def test_b61_without_sharding_each_rank_has_all(layout):
    with layout.ours() as s:
        found = [s.gather(batch, axis=0) for batch in by_replica(s, numbers(8, 4, Policy.OFF))]
        each = 4 // s.num_replicas_in_sync * layout.devices  # rows of a rank in a step
        steps = [range(i, i + each) for i in range(0, 8, each)]
        want = [sorted([*step] * layout.ranks) for step in steps]
        assert [sorted(rows.numpy().tolist()) for rows in found] == want


@same()
def test_b61_what_has_no_files_is_not_sharded_by_file(s):
    # One worker has nothing to shard.
    if getattr(s, "communicator", None) is None or s.communicator.size == 1:
        return True
    return "nothing" not in str(raised(lambda: by_replica(s, numbers(8, 4, Policy.FILE))))


@takes_long()
@same([case for case in EVERYWHERE if case.kind != "Central"])  # TensorFlow's has a typo here
def test_b60_prefetch(s):
    found = []
    for is_on in [True, False]:
        options = tf.distribute.InputOptions(experimental_fetch_to_device=is_on)
        found += by_step(by_replica(s, numbers(4, 4), options))
    return found


@same()
def test_b60_nests_and_dtypes(s):
    x = tf.reshape(tf.range(8.0), (4, 2))
    dataset = tf.data.Dataset.from_tensor_slices(
        {"x": x, "y": (tf.range(4), ["a", "b", "c", "d"])}
    )
    (batch,) = s.experimental_distribute_dataset(steady(dataset.batch(4)))
    return [
        s.reduce("SUM", batch["x"], axis=0),
        Rows([batch["y"][0]]),
        s.run(lambda b: (b["x"].dtype.name, b["y"][1].dtype.name), args=(batch,)),
    ]


@same()
def test_b62_no_further_transformations(s):
    dataset = s.experimental_distribute_dataset(numbers(8, 4))
    return [hasattr(dataset, name) for name in ["map", "batch", "__iter__", "element_spec"]]


@same()
def test_b63_element_spec(s):
    dataset = s.experimental_distribute_dataset(numbers(8, 4, drop_remainder=True))
    specs = s.experimental_local_results(dataset.element_spec)
    first = tf.nest.flatten(specs[0], expand_composites=True)[0]
    # On several ranks the length is open, as with TensorFlow's multi-worker strategy: a rank may
    # run out of data before the others do.
    return [first.dtype.name, first.shape.rank]


@takes_long()
@same()
def test_b63_as_input_signature(s):
    dataset = s.experimental_distribute_dataset(numbers(9, 4))
    traces = []

    @tf.function(input_signature=[dataset.element_spec])
    def step(batch):
        traces.append(1)
        return s.reduce("SUM", s.run(tf.reduce_sum, args=(batch,)), axis=None)

    return [[step(batch) for batch in dataset], len(traces)]


@takes_long()
@same()
def test_iterators(s):
    dataset = s.experimental_distribute_dataset(numbers(6, 4))
    iterator = iter(dataset)
    first = iterator.get_next()
    second = iterator.get_next_as_optional()
    third = iterator.get_next_as_optional()
    return [
        by_step([first, second.get_value()]),
        [bool(second.has_value()), bool(third.has_value())],
        raised(lambda: next(iterator)),
        len(list(dataset)),
    ]


@takes_long()
@same()
def test_an_iterator_in_a_graph(s):
    iterator = iter(s.experimental_distribute_dataset(numbers(12, 4).repeat()))

    @tf.function
    def steps(iterator):
        total = tf.constant(0, tf.int64)
        for _ in tf.range(4):
            mine = s.run(tf.reduce_sum, args=(next(iterator),))
            total += s.reduce("SUM", mine, axis=None)
        return total

    return [steps(iterator), steps(iterator)]


@takes_long()
@same()
def test_e01_e03_train_step(s):
    @tf.function
    def train_step(val):
        return val + 1

    found = []
    for batch in s.experimental_distribute_dataset(numbers(5, 2)):
        found += by_step([s.run(train_step, args=(batch,))])
    return found


@same()
def test_e04_b70_numpy(s):
    if not hasattr(s, "experimental_make_numpy_dataset"):  # TensorFlow 2.21's V1 classes have it
        return [Rows([tf.ones([4], tf.float64)])] * 2
    dataset = s.experimental_make_numpy_dataset(tf.ones([8], tf.float64).numpy())
    return by_step(by_replica(s, steady(dataset.batch(4))))


@takes_long()
@same()
def test_e26_b61_records_in_files(s):
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"{i}.tfrecord") for i in range(4)]
        for i, file in enumerate(files):
            with tf.io.TFRecordWriter(file) as writer:
                for j in range(4):
                    writer.write(f"{10 * i + j}".encode())

        def numbered(record):
            return tf.strings.to_number(record, tf.int32)

        found = []
        for policy in [Policy.AUTO, Policy.FILE, Policy.DATA]:
            dataset = sharded(tf.data.TFRecordDataset(files).map(numbered).batch(4), policy)
            batches = [s.run(lambda x: x * 2, args=(b,)) for b in by_replica(s, dataset)]
            found += [len(batches), Rows(batches)]
        return found
