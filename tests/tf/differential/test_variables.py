"""Variables of each kind, read and written in and across replicas, as TensorFlow does it."""

import tempfile

import pytest

tf = pytest.importorskip("tensorflow")

from helpers.tf.cases import (  # noqa: E402
    EVERYWHERE,
    SPREAD,
    raised,
    same,
)
from helpers.tf.process import four_cpus  # noqa: E402 - TensorFlow may be missing
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

Aggregation, Sync = tf.VariableAggregation, tf.VariableSynchronization
AGGREGATIONS = [Aggregation.SUM, Aggregation.MEAN, Aggregation.ONLY_FIRST_REPLICA]
BUT_CENTRAL = [case for case in EVERYWHERE if case.kind != "Central"]


def make(s, aggregation=Aggregation.NONE, synchronization=Sync.AUTO, value=(1.0, 2.0)):
    with s.scope():
        return tf.Variable(
            list(value) if isinstance(value, tuple) else value,
            aggregation=aggregation,
            synchronization=synchronization,
            trainable=synchronization != Sync.ON_READ,
        )


def mine():
    """Return a replica's own value."""
    i = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
    return tf.stack([i + 1.0, 2.0 * i])


def parts(s, variable):
    """Return each replica's own copy."""
    return s.run(lambda: tf.identity(variable))


@same()
def test_assigned_across_replicas(s):
    found = []
    for aggregation in [Aggregation.NONE, *AGGREGATIONS]:
        v = make(s, aggregation)
        v.assign([3.0, 4.0])
        v.assign_add([1.0, 1.0])
        v.assign_sub([0.5, 0.25])
        found += [v.read_value(), v.numpy(), parts(s, v), v.aggregation is aggregation]
    return found


@same()
def test_assigned_in_replicas(s):
    found = []
    for aggregation in AGGREGATIONS:
        v = make(s, aggregation)
        s.run(lambda v=v: v.assign(mine()))
        found += [v.numpy(), parts(s, v)]
        s.run(lambda v=v: v.assign_add(mine()))
        s.run(lambda v=v: v.assign_sub(mine() * 2.0))
        found += [v.numpy(), parts(s, v)]
    return found


@takes_long()
@same()
def test_assigned_in_replicas_in_a_graph(s):
    found = []
    for aggregation in AGGREGATIONS:
        v = make(s, aggregation)

        @tf.function
        def step(v=v):
            s.run(lambda: v.assign_add(mine()))
            v.assign_add([10.0, 0.0])
            return s.run(lambda: v + 0.0)

        found += [step(), step(), v.numpy()]
    return found


@same(BUT_CENTRAL)
def test_without_aggregation_not_in_replicas(s):
    # TensorFlow's central storage adds up what its replicas do, in any order.
    v = make(s)
    return [raised(lambda: s.run(lambda: v.assign(mine()))), parts(s, v)]


@same(BUT_CENTRAL)
def test_on_read_written_in_replicas(s):
    found = []
    for aggregation in AGGREGATIONS:
        v = make(s, aggregation, Sync.ON_READ)
        s.run(lambda v=v: v.assign_add(mine()))
        found += [parts(s, v), v.read_value(), v.numpy(), tf.reduce_sum(v), v.value()]
        s.run(lambda v=v: v.assign(mine() * 8.0))
        found += [parts(s, v), tf.identity(v)]
    return found


@same(BUT_CENTRAL)
def test_on_read_written_across_replicas(s):
    found = []
    for aggregation in AGGREGATIONS:
        v = make(s, aggregation, Sync.ON_READ)
        v.assign(tf.constant([4.0, 8.0]))
        found += [parts(s, v), v.read_value()]
        found += [raised(lambda v=v: v.assign_add(tf.constant([4.0, 4.0]))), v.read_value()]
    return found


@same(BUT_CENTRAL)
def test_on_read_in_a_graph(s):
    v = make(s, Aggregation.SUM, Sync.ON_READ, 0.0)

    @tf.function
    def step():
        s.run(lambda: v.assign_add(tf.reduce_sum(mine())))
        return v.read_value()

    return [step(), step(), v.numpy()]


@same(BUT_CENTRAL)
def test_on_read_without_aggregation(s):
    v = make(s, Aggregation.NONE, Sync.ON_READ)
    s.run(lambda: v.assign(mine()))
    return [parts(s, v), raised(v.read_value)]


@same(BUT_CENTRAL)
def test_classes_and_flags(s):
    found = []
    for synchronization in [Sync.AUTO, Sync.ON_WRITE, Sync.ON_READ]:
        v = make(s, Aggregation.MEAN, synchronization)
        found += [v.synchronization.name, v.trainable, v.dtype.name, isinstance(v, tf.Variable)]
    return found


@pytest.mark.parametrize("layout", [c for c in SPREAD if c.kind == "Central"], ids=str)
def test_on_read_of_central_storage(layout):
    # TensorFlow's has one copy for all; ours keeps a part for each replica, as Mirrored does.
    each = [3.0 * i + 1.0 for i in range(layout.replicas)]
    with layout.ours() as s:
        for aggregation, want in zip(
            AGGREGATIONS, [sum(each), sum(each) / len(each), each[0]], strict=True
        ):
            v = make(s, aggregation, Sync.ON_READ, 0.0)
            s.run(lambda v=v: v.assign_add(tf.reduce_sum(mine())))
            assert v.read_value().numpy() == v.value().numpy() == want


@same()
def test_first_values_are_one_ranks(s):
    # On several ranks they are rank 0's; TensorFlow's one process has just one.
    with s.scope():
        constant = tf.Variable(lambda: tf.ones([2]))
        number = tf.Variable(3)
        text = tf.Variable("a")
    return [constant, number, text.numpy().decode(), constant.dtype.name, number.dtype.name]


@pytest.mark.parametrize("layout", [c for c in SPREAD if c.ranks > 1], ids=str)
def test_first_values_that_differ_are_rank_0s(layout):
    with layout.ours() as s, s.scope():
        v = tf.Variable([1.0 + s.communicator.rank, 5.0])
        assert v.numpy().tolist() == [1.0, 5.0]
        assert all(one.numpy()[0] == 1.0 for one in s.experimental_local_results(v))
        drawn = tf.Variable(tf.random.normal([3], seed=s.communicator.rank))
        assert len(set(map(str, s.communicator.allgather_object(drawn.numpy().tolist())))) == 1


@same()
def test_sparse_updates(s):
    v = make(s, Aggregation.SUM, value=(0.0, 0.0, 0.0))
    slices = tf.IndexedSlices(tf.constant([1.0, 2.0]), tf.constant([0, 2]), tf.constant([3]))
    v.scatter_add(slices)
    v.scatter_sub(tf.IndexedSlices(tf.constant([0.5]), tf.constant([2]), tf.constant([3])))
    return v.numpy()


@same()
def test_variables_made_in_replicas(s):
    made = []

    def fn():
        if len(made) < len(s.extended.worker_devices):
            made.append(tf.Variable(2.0))
        return made[0] * 3.0

    return s.run(fn)


@same()
def test_updates(s):
    v = make(s)
    s.extended.update(v, lambda one, by: one.assign_add(by), args=([1.0, 1.0],))
    return [v.numpy(), s.extended.value_container(v) is v]


@same()
def test_operators_and_conversions(s):
    v = make(s, value=(4.0, 9.0))
    return [v * 2.0, 2.0 - v, v[1], tf.sqrt(v), float(v[0]), v.shape.as_list(), len(v.numpy()), -v]


@same()
def test_checkpoints(s):
    v = make(s, Aggregation.MEAN)
    w = make(s, Aggregation.SUM, Sync.ON_READ, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        saved = tf.train.Checkpoint(v=v).save(f"{folder}/c")
        v.assign([0.0, 0.0])
        tf.train.Checkpoint(v=v).restore(saved).assert_consumed()
    return [v.numpy(), parts(s, v), w.numpy()]


class Scaled(tf.Module):
    def __init__(self):
        self.v = tf.Variable([2.0, 3.0])

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def __call__(self, x):
        return self.v * x


@takes_long()
@same()
def test_b11_saved_models(s):
    with s.scope():
        module = Scaled()
    module.v.assign([4.0, 5.0])
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        plain = tf.saved_model.load(folder)
        with s.scope():
            again = tf.saved_model.load(folder)
        found = [plain(tf.constant(2.0)), s.run(lambda: again(tf.constant(3.0)))]
    return [*found, again.v]
