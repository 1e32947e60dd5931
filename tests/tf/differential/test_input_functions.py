"""Input functions, iterators and arrays, as TensorFlow takes them (B64 to B70, E5, E27, E29)."""

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

BUT_CENTRAL = [case for case in EVERYWHERE if case.kind != "Central"]  # TensorFlow's has a typo


def input_of(context):
    """Return this pipeline's part of 16 numbers in batches of one replica."""
    batch = context.get_per_replica_batch_size(4)
    dataset = tf.data.Dataset.range(16).shard(
        context.num_input_pipelines, context.input_pipeline_id
    )
    return steady(dataset.batch(batch))


@same()
def test_b64_rows_of_a_step(s):
    batches = list(s.distribute_datasets_from_function(input_of))
    sizes = [s.reduce("SUM", s.run(tf.size, args=(batch,)), axis=None) for batch in batches]
    return [sizes, Rows(batches)]


@pytest.mark.parametrize("layout", EVERYWHERE, ids=str)
def test_b64_b65_called_once_a_rank(layout):
    seen = []

    def dataset_fn(context):
        seen.append(context)
        return steady(tf.data.Dataset.range(2 * layout.devices).batch(1))

    with layout.ours() as s:
        batches = list(s.distribute_datasets_from_function(dataset_fn))
        (context,) = seen
        assert context.num_input_pipelines == layout.ranks
        assert context.input_pipeline_id == (s.communicator.rank if layout.ranks > 1 else 0)
        assert context.num_replicas_in_sync == layout.replicas
        assert len(batches) == 2


@same()
def test_b65_per_replica_batch_size(s):
    found = []

    def dataset_fn(context):
        found.append(context.get_per_replica_batch_size(8))
        found.append(raised(lambda: context.get_per_replica_batch_size(7)))
        return tf.data.Dataset.range(4)

    s.distribute_datasets_from_function(dataset_fn)
    return found if s.num_replicas_in_sync > 1 else found[:1]


@same()
def test_b64_deprecated_name(s):
    if not hasattr(s, "experimental_distribute_datasets_from_function"):
        return None
    return len(list(s.experimental_distribute_datasets_from_function(input_of)))


@same()
def test_b66_infinite(s):
    iterator = iter(s.distribute_datasets_from_function(lambda c: input_of(c).repeat()))
    return [next(iterator) is not None for _ in range(9)]


@pytest.mark.parametrize("layout", [case for case in SPREAD if case.ranks > 1], ids=str)
def test_unequal_numbers_of_batches(layout):
    # TensorFlow's have one process; several would stop when the first rank has no more.
    def dataset_fn(context):
        steps = 1 + 2 * context.input_pipeline_id
        return steady(tf.data.Dataset.range(1, 1 + steps * layout.devices).batch(1))

    with layout.ours() as s:
        batches = s.distribute_datasets_from_function(dataset_fn)
        totals = [s.reduce("SUM", batch, axis=0).numpy() for batch in batches]
        last = range(1 + layout.devices, 1 + 3 * layout.devices)
        per_step = [last[i : i + layout.devices] for i in (0, layout.devices)]
        first = 2 * sum(range(1, 1 + layout.devices))
        assert totals == [first, *map(sum, per_step)]


@pytest.mark.parametrize("layout", [case for case in SPREAD if case.ranks > 1], ids=str)
def test_unequal_numbers_of_batches_in_a_graph(layout):
    def dataset_fn(context):
        rows = (3 - context.input_pipeline_id) * layout.devices
        return steady(tf.data.Dataset.range(rows).batch(1))

    with layout.ours() as s:

        @tf.function
        def epoch(dataset):
            rows = tf.constant(0)
            for batch in dataset:
                rows += s.reduce("SUM", s.run(tf.size, args=(batch,)), axis=None)
            return rows

        assert epoch(s.distribute_datasets_from_function(dataset_fn)) == 5 * layout.devices


@takes_long()
@same()
def test_b69_make_dataset_iterator(s):
    iterator = s.make_dataset_iterator(steady(tf.data.Dataset.range(8).batch(4)))
    found = []
    for _ in range(2):
        iterator.initialize()
        found += [Rows([iterator.get_next()]) for _ in range(2)]
        found += [raised(iterator.get_next)]
    return found


@takes_long()
@same()
def test_e05_e29_input_fn_iterator(s):
    mode = tf.distribute.InputReplicationMode.PER_WORKER
    iterator = s.make_input_fn_iterator(input_of, replication_mode=mode)
    iterator.initialize()
    first = s.experimental_run(lambda x: x * 2, iterator)
    second = s.extended.call_for_each_replica(lambda x: x + 1, (iterator.get_next(),))
    sizes = [s.run(tf.size, args=(one,)) for one in (first, second)]
    return [s.reduce("SUM", size, axis=None) for size in sizes]


@same()
def test_e27_endless_ones(s):
    def dataset_fn(context):
        batch = context.get_per_replica_batch_size(8)
        dataset = tf.data.Dataset.from_tensors([[1.0]]).repeat().batch(batch)
        return steady(dataset.shard(context.num_input_pipelines, context.input_pipeline_id))

    dataset = s.distribute_datasets_from_function(dataset_fn)
    step = tf.function(lambda batch: s.run(lambda x: tf.reduce_sum(x) * 2.0, args=(batch,)))
    iterator = iter(dataset)
    return [s.reduce("SUM", step(next(iterator)), axis=None) for _ in range(2)]


@pytest.mark.parametrize("layout", SPREAD, ids=str)
def test_b70_make_numpy_dataset(layout):
    # Only V1 classes of TensorFlow 2.21 have it; B70 says what it does.
    with layout.ours() as s:
        nest = {"x": tf.range(4).numpy(), "y": (tf.ones([4, 2]).numpy(),)}
        (batch,) = s.experimental_distribute_dataset(
            steady(s.experimental_make_numpy_dataset(nest).batch(4))
        )
        assert s.reduce("SUM", batch["x"], axis=0).numpy() == 6
        assert s.reduce("SUM", batch["y"][0], axis=0).numpy().tolist() == [4.0, 4.0]
        stacked = s.experimental_make_numpy_dataset([tf.ones([3]).numpy(), tf.zeros([3]).numpy()])
        assert [row.numpy().tolist() for row in steady(stacked)] == [[1.0] * 3, [0.0] * 3]
        with pytest.raises(ValueError, match="list"):
            s.experimental_make_numpy_dataset({"x": [nest["x"], nest["x"]]})


@same(BUT_CENTRAL)
def test_per_replica_pipelines(s):
    options = tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
        experimental_fetch_to_device=False,
    )
    return raised(lambda: s.experimental_distribute_dataset(tf.data.Dataset.range(4), options))


@same()
def test_wrong_input(s):
    return [
        raised(lambda: s.experimental_distribute_dataset(tf.data.Dataset.range(4))),
        raised(lambda: s.experimental_distribute_dataset([1, 2])),
        raised(lambda: s.distribute_datasets_from_function(3)),
        raised(lambda: s.distribute_datasets_from_function(lambda _: 3)),
    ]
