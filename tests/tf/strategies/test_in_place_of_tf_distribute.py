"""Programs that put this package in the place of ``tf.distribute`` and change nothing else."""

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import repeats, takes_long

pytestmark = pytest.mark.deadline(200)

PROGRAM = """
import keras
import numpy as np
import tensorflow as tf

import mpistrat.tensorflow

theirs = tf.distribute.ReduceOp, tf.distribute.Strategy, tf.distribute.experimental.ValueContext
classes = tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy
tf.distribute = mpistrat.tensorflow

found = tf.distribute.ReduceOp, tf.distribute.Strategy, tf.distribute.experimental.ValueContext
assert found == theirs
assert not {*classes} & {tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy}
assert {"ReduceOp", "InputContext", "MirroredStrategy"} <= {*dir(tf.distribute)}
assert {"CommunicationOptions", "ValueContext"} <= {*dir(tf.distribute.experimental)}
assert "PerWorkerValues" in dir(tf.distribute.coordinator)
assert tf.distribute.coordinator.PerWorkerValues is not None
resolvers = tf.distribute.cluster_resolver
assert resolvers.SlurmClusterResolver is mpistrat.cluster_resolver.SlurmClusterResolver
assert "TFConfigClusterResolver" in dir(resolvers)
assert resolvers.TFConfigClusterResolver is not mpistrat.cluster_resolver.TFConfigClusterResolver
for module in (tf.distribute, tf.distribute.experimental, tf.distribute.coordinator, resolvers):
    assert not hasattr(module, "NoSuchName")

options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1 << 20)
makers = {
    "mirrored": lambda: tf.distribute.MirroredStrategy(),
    "workers": lambda: tf.distribute.MultiWorkerMirroredStrategy(communication_options=options),
    "older": lambda: tf.distribute.experimental.MultiWorkerMirroredStrategy(),
    "central": lambda: tf.distribute.experimental.CentralStorageStrategy(),
}
x = np.random.default_rng(0).normal(size=(22, 3))
y = x.sum(1, keepdims=True)


def fitted(model, eagerly=True):
    model.compile("sgd", "mse", metrics=["mae"], run_eagerly=eagerly)
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False).history
    losses = model.evaluate(x, y, batch_size=8, verbose=0)
    rows = model.predict(x, batch_size=8, verbose=0)
    return [*history["loss"], *history["mae"], *losses, *rows.flatten()]


def made():
    ones = keras.initializers.Ones()
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer=ones)])


keras.config.set_floatx("float64")
want = fitted(made())


def replica():
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0), options)


for name, make in makers.items():
    with make() as strategy:
        assert isinstance(strategy, tf.distribute.Strategy)
        size = strategy.communicator.size
        assert strategy.num_replicas_in_sync == size
        assert strategy.run(tf.function(replica)).numpy() == size
        with strategy.scope():
            model = made()
        found = fitted(model, name != "mirrored")  # one of them is traced
        np.testing.assert_allclose(found, want, rtol=1e-9, err_msg=name)
with tf.distribute.OneDeviceStrategy("CPU:0").scope():
    np.testing.assert_allclose(fitted(made()), want, rtol=1e-9)
print("works", flush=True)
"""

SERVERS = """
import tensorflow as tf

import mpistrat.tensorflow

tf.distribute = mpistrat.tensorflow
from mpistrat.cluster_resolver import MPIClusterResolver

resolver = MPIClusterResolver(num_ps=1)
if resolver.task_type == "chief":
    with tf.distribute.ParameterServerStrategy(resolver) as strategy:
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            total = tf.Variable(1.0)
        value = coordinator.schedule(tf.function(lambda: total + 1.0))
        assert value.fetch() == 2.0 == coordinator.fetch([value])[0]
        coordinator.join()
else:
    tf.distribute.Server(resolver).join()
print("works", flush=True)
"""


@takes_long()
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=repeats())])
def test_strategies_of_a_program_that_assigns(ranks):
    result = run_job(["-c", PROGRAM], ranks, 100).check()
    for rank in result.ranks:
        assert rank.stdout.splitlines()[-1:] == ["works"], result.output


@repeats()  # see servers/test_strategy.py
@pytest.mark.parametrize("ranks", [1, 3])
def test_parameter_servers_of_a_program_that_assigns(ranks):
    result = run_job(["-c", SERVERS], ranks, 60).check()
    for rank in result.ranks:
        assert rank.stdout.splitlines()[-1:] == ["works"], result.output
