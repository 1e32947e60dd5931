"""The examples of TPUStrategy's page: traced for a TPU, and run on CPUs where it has no part."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat  # noqa: E402
from helpers.pretend.tpus import PretendResolver, initialized, traced  # noqa: E402
from helpers.tf.cases import mirrored_on  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402 - TensorFlow may be missing
from mpistrat.tensorflow import TFBackedStrategy  # noqa: E402
from mpistrat.tensorflow.tpu.assignment import topology_of  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

RANKS = pytest.mark.mpi(ranks=[1, 2, 3] if with_all() else [2], timeout_s=60)
pytestmark = pytest.mark.filterwarnings("ignore:Do not pass an `input_shape`")  # as the page does
WAYS = pytest.mark.parametrize("driver", [None, 0])


def mirrored():
    return mirrored_on(["CPU:0", "CPU:1"])


def assigned(topology, computation_shape, num_replicas):
    """Return a strategy as the page makes one whose replicas have several logical devices."""
    device_assignment = tf.tpu.experimental.DeviceAssignment.build(
        topology, computation_shape=computation_shape, num_replicas=num_replicas
    )
    resolver = PretendResolver(int(np.prod(topology.mesh_shape)))
    return mpistrat.TPUStrategy(resolver, experimental_device_assignment=device_assignment)


def kinds(function, *args):
    return [node.op for node in traced(function, *args)]


def shardings(function, *args):
    """Return the annotations in a traced program, decoded, in their order."""
    from tensorflow.compiler.xla import xla_data_pb2

    found = [node for node in traced(function, *args) if node.op == "XlaSharding"]
    return [xla_data_pb2.OpSharding.FromString(node.attr["_XlaSharding"].s) for node in found]


def training(strategy):
    """Return E24b's step, its iterator, its model, and the rows of its data."""
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(5,))])
        optimizer = tf.keras.optimizers.SGD(learning_rate=0.1)
    random = np.random.default_rng(0)
    x = random.random((2, 5)).astype(np.float32)
    y = random.integers(2, size=(2, 1))

    def dataset_fn(ctx):
        del ctx
        dataset = tf.data.Dataset.from_tensor_slices((x, y))
        return dataset.repeat().batch(1, drop_remainder=True)

    dist_dataset = strategy.experimental_distribute_datasets_from_function(dataset_fn)
    iterator = iter(dist_dataset)

    @tf.function()
    def train_step(iterator):
        def step_fn(inputs):
            features, labels = inputs
            with tf.GradientTape() as tape:
                logits = model(features, training=True)
                loss = tf.keras.losses.sparse_categorical_crossentropy(labels, logits)
            grads = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

        strategy.run(step_fn, args=(next(iterator),))

    return train_step, iterator, model, (x, y)


# ------------------------------------------------------------------------------------- run here


def gradients(model, x, y):
    with tf.GradientTape() as tape:
        loss = keras.losses.sparse_categorical_crossentropy(y, model(x))
    return tape.gradient(loss, model.trainable_variables)


@takes_long()
@RANKS
@WAYS
def test_e24b_where_slices_can_be_executed(driver):
    with TFBackedStrategy(mirrored, driver=driver) as s:
        train_step, iterator, model, rows = training(s)
        for variable in model.trainable_variables:
            variable.assign(tf.ones(variable.shape) / 4)
        before = model.get_weights()
        grads = [s.communicator.size * g if driver is None else g for g in gradients(model, *rows)]
        s.on_driver(train_step, iterator)
        after = s.on_driver(model.get_weights)
        for old, new, grad in zip(before, after, grads, strict=True):
            np.testing.assert_allclose(new, old - 0.1 * grad.numpy(), rtol=1e-5)


@RANKS
@WAYS
def test_e28_where_slices_can_be_executed(driver):
    with TFBackedStrategy(mirrored, driver=driver) as s:
        n = 2 * (s.communicator.size if driver is None else 1)

        def value_fn(value_context):
            return value_context.num_replicas_in_sync

        @tf.function
        def run():
            distributed_values = s.experimental_distribute_values_from_function(value_fn)

            def replica_fn(input):  # noqa: A002 - as the page has it
                return input * 2

            return s.run(replica_fn, args=(distributed_values,))

        assert s.on_driver(lambda: set(map(int, s.experimental_local_results(run())))) == {2 * n}


# --------------------------------------------------------------------------------- traced here


def test_e24_construct():
    resolver = PretendResolver()
    tf.config.experimental_connect_to_cluster(resolver)
    with initialized() as topology, mpistrat.TPUStrategy(resolver) as strategy:
        assert strategy.cluster_resolver is resolver
        assert strategy.topology is topology
        assert strategy.num_replicas_in_sync == 2


@takes_long()
def test_e24b_a_training_step():
    with initialized(), mpistrat.TPUStrategy(PretendResolver()) as strategy:
        train_step, iterator, _, _ = training(strategy)
        found = kinds(train_step, iterator)
        assert found.count("TPUReplicateMetadata") == 1
        assert found.count("CrossReplicaSum") >= 2  # of the kernel and of the bias


def test_e24c_e24d_two_logical_devices_for_one_replica():
    with initialized((1, 1, 1, 2)) as topology, assigned(topology, [1, 1, 1, 2], 1) as strategy:
        assert strategy.num_replicas_in_sync == 1

        @tf.function()
        def step_fn(inputs):
            features, _ = inputs
            output = tf.add(features, features)
            return strategy.experimental_assign_to_logical_device(output, 0)

        dist_dataset = strategy.experimental_distribute_datasets_from_function(
            lambda _: tf.data.Dataset.from_tensors((tf.ones([2, 5]), tf.ones([2, 1])))
        )
        iterator = iter(dist_dataset)
        (found,) = shardings(lambda it: strategy.run(step_fn, args=(next(it),)), iterator)
        assert found.type == found.MAXIMAL
        assert list(found.tile_assignment_devices) == [0]


def test_e25_two_logical_devices_for_each_of_four_replicas():
    with initialized((2, 2, 1, 2)) as topology, assigned(topology, [1, 1, 1, 2], 4) as strategy:
        assert strategy.num_replicas_in_sync == 4

        @tf.function()
        def step_fn(inputs):
            output = tf.add(inputs, inputs)
            return strategy.experimental_assign_to_logical_device(output, 0)

        values = strategy.experimental_distribute_values_from_function(lambda _: tf.ones([2]))
        (found,) = shardings(lambda: strategy.run(step_fn, args=(values,)))
        assert list(found.tile_assignment_devices) == [0]


def loss_of_parts(strategy):
    """Return E25b's step: a model of parts of images, and a loss that has no parts."""
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((4, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(2)]
        )

    @tf.function()
    def step_fn(inputs):
        images, labels = inputs
        images = strategy.experimental_split_to_logical_devices(images, [1, 2, 4, 1])
        output = model(images)
        labels = strategy.experimental_replicate_to_logical_devices(labels)
        output = strategy.experimental_replicate_to_logical_devices(output)
        return keras.losses.mean_squared_error(labels, output)

    values = strategy.experimental_distribute_values_from_function(
        lambda _: (tf.ones([1, 4, 8, 3]), tf.ones([1, 2]))
    )
    return lambda: strategy.run(step_fn, args=(values,))


@takes_long()
def test_e25b_a_loss_that_all_logical_devices_have():
    with initialized((2, 2, 1, 2)) as topology, assigned(topology, [2, 2, 1, 2], 1) as strategy:
        split, labels, output = shardings(loss_of_parts(strategy))
        assert list(split.tile_assignment_dimensions) == [1, 2, 4, 1]
        assert sorted(split.tile_assignment_devices) == list(range(8))
        assert labels.type == output.type == split.REPLICATED


def test_e25b_b106_as_the_page_has_it():
    with initialized((2, 2, 1, 2)) as topology, assigned(topology, [1, 1, 1, 2], 4) as strategy:
        step = loss_of_parts(strategy)
        with pytest.raises(UsageError, match="product"):
            traced(step)


def test_e25c_b107_eight_logical_devices():
    topology = topology_of([1, 2, 2, 2])  # as the page has it; a v3-8 has [2, 2, 1, 2]
    with initialized((1, 2, 2, 2)), assigned(topology, [1, 2, 2, 2], 1) as strategy:

        @tf.function()
        def step_fn(inputs):
            inputs = strategy.experimental_split_to_logical_devices(inputs, [1, 2, 4, 1])
            return tf.reduce_sum(inputs)

        values = strategy.experimental_distribute_values_from_function(
            lambda _: tf.ones([1, 4, 8, 3])
        )
        (found,) = shardings(lambda: strategy.run(step_fn, args=(values,)))
        assert list(found.tile_assignment_dimensions) == [1, 2, 4, 1]
        assert len(found.tile_assignment_devices) == 8
