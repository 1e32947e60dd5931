"""Keras's optimizers on ranks: the weights and the count of steps of one process, on all ranks."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.mistakes import refused  # noqa: E402
from helpers.tf.cases import Case  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=120)

kinds = keras.optimizers


class Clipping(kinds.SGD):
    """Clips by itself, too, before the step has begun."""

    def apply(self, grads, trainable_variables=None):
        super().apply(self._clip_gradients(grads), trainable_variables)


ALWAYS = {
    "accumulated": lambda: kinds.Adam(0.05, gradient_accumulation_steps=3, global_clipnorm=0.1),
    "averaged": lambda: kinds.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "scaled": lambda: kinds.LossScaleOptimizer(
        kinds.Adam(0.05), initial_scale=8.0, dynamic_growth_steps=3
    ),
    "Muon": lambda: kinds.Muon(0.05),
    "Nadam": lambda: kinds.Nadam(0.05),
}
EVERYWHERE = {
    "clipped": lambda: kinds.SGD(0.5, clipnorm=0.05),
    "clipped by a subclass": lambda: Clipping(0.5, clipnorm=0.05),
    "decayed": lambda: kinds.Adam(kinds.schedules.CosineDecay(0.2, 8), weight_decay=0.05),
    "Adafactor": lambda: kinds.Adafactor(0.05),
    "Lamb": lambda: kinds.Lamb(0.05),
    "Lion": lambda: kinds.Lion(0.01),
    "Ftrl": lambda: kinds.Ftrl(0.1),
}
ALL = {**ALWAYS, **EVERYWHERE}
NUMBERS = np.random.default_rng(0)
X = NUMBERS.normal(size=(64, 4)).astype("float32")
Y = (X @ NUMBERS.normal(size=(4, 3))).astype("float32")


def compiled(strategy, optimizer):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.layers.Dense(8, "tanh"), keras.layers.Dense(3)]
        model = keras.Sequential([keras.Input((4,)), *layers])
        model.compile(ALL[optimizer](), "mse")
    return model


def fit(model, strategy):
    model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)


def loop(model, strategy):
    optimizer, variables = model.optimizer, model.trainable_variables

    def replica(x, y):
        with tf.GradientTape() as tape:
            error = tf.reduce_sum((model(x, training=True) - y) ** 2) / (8 * 3)
            error = optimizer.scale_loss(error)
        optimizer.apply_gradients(zip(tape.gradient(error, variables), variables, strict=True))

    @tf.function
    def step(x, y):
        strategy.run(replica, args=(x, y))

    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    for batch in strategy.experimental_distribute_dataset(data):
        step(*batch)


def trained(strategy, optimizer, train):
    model = compiled(strategy, optimizer)
    train(model, strategy)
    weights = np.concatenate([one.numpy().ravel() for one in model.trainable_variables])
    return weights, int(model.optimizer.iterations.numpy())


def check(strategy, optimizer, train):
    weights, iterations = trained(strategy, optimizer, train)
    expected = trained(tf.distribute.get_strategy(), optimizer, train)
    np.testing.assert_allclose(weights, expected[0], rtol=1e-3, atol=1e-5)
    told = strategy.communicator.allgather_object((weights.tobytes(), iterations))
    assert told == [(weights.tobytes(), expected[1])] * len(told)


@takes_long()
@pytest.mark.parametrize(
    ("optimizer", "train"), [*((one, fit) for one in ALL), *((one, loop) for one in ALWAYS)]
)
def test_as_in_one_process(optimizer, train):
    with distribute.MultiWorkerMirroredStrategy() as strategy:
        check(strategy, optimizer, train)


@takes_long()
@pytest.mark.parametrize("optimizer", EVERYWHERE)
def test_central_storage(optimizer):
    with Case(2, 1, "Central").ours() as strategy:
        check(strategy, optimizer, loop)


@takes_long()
@pytest.mark.parametrize("optimizer", ["averaged", "scaled", "Muon", "Nadam"])
def test_what_central_storage_refuses(optimizer):
    """As TensorFlow's does, where it has several devices."""
    with Case(2, 1, "Central").ours() as strategy:
        model = compiled(strategy, optimizer)
        with refused(ValueError, "specify an aggregation method"):
            fit(model, strategy)
