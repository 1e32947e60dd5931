"""MultiWorkerMirroredStrategy, as TensorFlow has it on two real processes.

All snippets of the other differential tests run here too, and on each rank ours has to give what
TensorFlow's gives on that rank: the same shares of data sets, the same text of ``repr``. Those
that follow them depend on the rank, so that no strategy of one process could be their reference.
"""

from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

from helpers.tf.cases import Rows, raised, steady  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from helpers.tf.two_processes import check_same, differs, snippets  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402 - TensorFlow may be missing

four_cpus()

# Alone, since TensorFlow's collectives have to be configured before anything else.
pytestmark = pytest.mark.mpi(ranks=2, timeout_s=60, alone=True)

HERE = Path(__file__)
FILES = [file for file in sorted(HERE.parent.glob("test_*.py")) if file != HERE]

# What ours does otherwise, and why. TensorFlow's fails in Keras's fit: that is compared nowhere.
FIRST = "TensorFlow's ranks keep a value each; ours have the first replica's, as Mirrored has"
DTYPES = "TensorFlow's collectives on CPUs have few dtypes"
DIFFERENT = {
    "test_assigned_in_replicas": FIRST,
    "test_assigned_in_replicas_in_a_graph": FIRST,
    "test_on_read_written_in_replicas": FIRST,
    "test_first_values_are_one_ranks": DTYPES + ", and no strings",
    "test_means_of_integers": DTYPES,
    "test_other_dtypes": DTYPES,
    "test_nests": "TensorFlow's reduces no nests on several processes",
    "test_no_collectives_in_control_flow_of_replicas": "ours has them with a device on each rank",
    "test_e04_b70_numpy": "TensorFlow's has no such member any more",
}
# After these TensorFlow's collectives work no more.
LAST = ["test_b34_unequal_shapes_have_no_elementwise_sum"]


def all_names():
    found = [(file.name, name) for file in FILES for name in snippets(file)]
    assert {*DIFFERENT, *LAST} <= {name for _, name in found}
    return [pair for pair in found if pair[1] not in LAST]


ALL = all_names()


@takes_long()
@pytest.mark.parametrize(("file", "name"), [pair for pair in ALL if pair[1] not in DIFFERENT])
def test_the_same(file, name):
    check_same(snippets(HERE.with_name(file))[name])


@takes_long()
@pytest.mark.parametrize(("file", "name"), [pair for pair in ALL if pair[1] in DIFFERENT])
def test_where_ours_differs_on_purpose(file, name):
    assert differs(snippets(HERE.with_name(file))[name]), f"no more so: {DIFFERENT[name]}"


# ------------------------------------------------------------------------ where ranks differ


def rank_of(s):
    return s.cluster_resolver.task_id


@takes_long()
def test_who_am_i():
    def snippet(s):
        resolver, e = s.cluster_resolver, s.extended
        return [
            (
                resolver.task_type,
                resolver.task_id,
                len(resolver.cluster_spec().as_dict()["worker"]),
            ),
            (e.should_checkpoint, e.should_save_summary, e.experimental_between_graph),
            s.num_replicas_in_sync,
            len(e.worker_devices),
        ]

    check_same(snippet)


@takes_long()
def test_first_values_that_differ_are_rank_0s():
    def snippet(s):
        with s.scope():
            return [tf.Variable([1.0 + rank_of(s), 5.0]), tf.Variable(lambda: 2 * rank_of(s))]

    check_same(snippet)


@takes_long()
def test_b35_b46_bare_values_that_differ():
    def snippet(s):
        mine = tf.constant([1.0, 2.0]) + rank_of(s)
        both = [s.reduce(op, mine, axis) for op in ("SUM", "MEAN") for axis in (None, 0)]
        return [*both, s.gather(mine, axis=0)]

    check_same(snippet)


@takes_long()
def test_b61_without_sharding():
    def snippet(s):
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = (
            tf.data.experimental.AutoShardPolicy.OFF
        )
        dataset = steady(tf.data.Dataset.range(9).batch(4)).with_options(options)
        return list(s.experimental_distribute_dataset(dataset))

    check_same(snippet)


@takes_long()
def test_b63_element_specs():
    def snippet(s):
        whole = tf.data.Dataset.range(9).batch(4, drop_remainder=True)
        own = tf.data.Dataset.range(9).batch(3)
        return [
            repr(s.experimental_distribute_dataset(whole).element_spec),
            repr(s.distribute_datasets_from_function(lambda _: own).element_spec),
        ]

    check_same(snippet)


@takes_long()
def test_b65_input_contexts():
    def snippet(s):
        seen = []

        def dataset_fn(context):
            seen.extend([context.num_input_pipelines, context.input_pipeline_id])
            seen.extend([context.num_replicas_in_sync, context.get_per_replica_batch_size(6)])
            return tf.data.Dataset.range(4)

        s.distribute_datasets_from_function(dataset_fn)
        return seen

    check_same(snippet)


def unequal(context):
    """Return one batch for rank 0, and three for rank 1."""
    return steady(tf.data.Dataset.range(1 + 2 * context.input_pipeline_id).batch(1))


@takes_long()
def test_unequal_numbers_of_batches():
    def snippet(s):
        dataset = s.distribute_datasets_from_function(unequal)
        iterator = iter(dataset)
        optionals = [iterator.get_next_as_optional() for _ in range(4)]
        again = iter(dataset)
        return [
            [Rows([batch]) for batch in dataset],
            [bool(one.has_value()) for one in optionals],
            [next(again) for _ in range(3)],
            raised(lambda: next(again)),
        ]

    check_same(snippet)


@takes_long()
def test_unequal_numbers_of_batches_in_a_graph():
    def snippet(s):
        @tf.function
        def epoch(dataset):
            rows = tf.constant(0)
            for batch in dataset:
                rows += s.reduce("SUM", s.run(tf.size, args=(batch,)), axis=None)
            return rows

        return epoch(s.distribute_datasets_from_function(unequal))

    check_same(snippet)


@takes_long()
def test_options_of_a_call():
    def snippet(s):
        options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=8)

        def fn():
            tensors = [tf.fill([n], 1.0 + rank_of(s)) for n in (1, 5, 3)]
            return tf.distribute.get_replica_context().all_reduce("SUM", tensors, options)

        return [s.run(fn), tf.function(lambda: s.run(fn))()]

    check_same(snippet)


@takes_long()
def test_training():
    def snippet(s):
        with s.scope():
            weights = tf.Variable(tf.ones([3, 1]), aggregation=tf.VariableAggregation.SUM)
        rows = tf.cast(tf.reshape(tf.range(36) % 7, (12, 3)), tf.float32)
        pairs = tf.data.Dataset.from_tensor_slices((rows, tf.reduce_sum(rows, 1, keepdims=True)))

        def fn(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((x @ weights * 2.0 - y) ** 2)
            weights.assign_sub(tape.gradient(loss, weights) * 0.001)
            return loss

        step = tf.function(lambda batch: s.run(fn, batch))
        dataset = s.experimental_distribute_dataset(steady(pairs.repeat(2).batch(4)))
        return [[s.reduce("SUM", step(batch), axis=None) for batch in dataset], weights]

    check_same(snippet)
