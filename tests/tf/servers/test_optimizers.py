"""Keras's optimizers under parameter servers: one worker gets the weights of one process."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from helpers.mistakes import refused  # noqa: E402 - TensorFlow may be missing
from helpers.tf.fit_on_servers import compiled  # noqa: E402
from helpers.tf.parameter_servers import on_chief  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

pytestmark = pytest.mark.mpi(ranks=4, timeout_s=90)

SGD, Adam = keras.optimizers.SGD, keras.optimizers.Adam
OPTIMIZERS = {
    "accumulated": lambda: SGD(0.1, momentum=0.9, gradient_accumulation_steps=2),
    "averaged": lambda: SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "both, clipped": lambda: Adam(
        0.05,
        global_clipnorm=0.1,
        gradient_accumulation_steps=3,
        use_ema=True,
        ema_overwrite_frequency=2,
    ),
}
NUMBERS = np.random.default_rng(1)
X = NUMBERS.normal(size=(24, 8)).astype("float32")
Y = (X.sum(1, keepdims=True) > 0).astype("float32")
STEPS = 6


def steps(model, run):
    """Make steps with `run`, which calls a function once, in a loop of one's own."""
    loss = keras.losses.BinaryCrossentropy(from_logits=True)

    def step(number):
        rows = tf.range(4 * number, 4 * number + 4)
        with tf.GradientTape() as tape:
            value = loss(tf.gather(Y, rows), model(tf.gather(X, rows), training=True))
        variables = model.trainable_variables
        model.optimizer.apply_gradients(
            zip(tape.gradient(value, variables), variables, strict=True)
        )

    for number in range(STEPS):
        run(step, tf.constant(number))


def state(model):
    weights = np.concatenate([one.numpy().ravel() for one in model.weights])
    return weights, int(model.optimizer.iterations.numpy())


def check_equal(found, expected):
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-6)
    assert found[1] == expected[1]


@takes_long()
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_as_in_one_process(optimizer):
    make = OPTIMIZERS[optimizer]

    def chief(s, coordinator):
        def fit(scope):
            model = compiled(scope, make)
            model.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
            return state(model)

        check_equal(fit(s.scope()), fit(tf.distribute.get_strategy().scope()))

        @tf.function
        def scheduled(step, number):
            s.run(step, args=(number,))

        def by_worker(step, number):
            coordinator.schedule(scheduled, args=(step, number))
            coordinator.join()

        ours, one = compiled(s.scope(), make), compiled(tf.distribute.get_strategy().scope(), make)
        with s.scope():
            ours.optimizer.build(ours.trainable_variables)
        steps(ours, by_worker)
        steps(one, lambda step, number: step(number))
        check_equal(state(ours), state(one))

    on_chief(chief, num_ps=2)


def test_several_workers_do_not_accumulate():
    def chief(s, _):
        model = compiled(s.scope(), OPTIMIZERS["accumulated"])
        with refused(UsageError, "gradient_accumulation_steps=2 with 2 workers"):
            model.fit(X, Y, batch_size=4, verbose=0)
        # A worker's moving averages lose nothing.
        model = compiled(s.scope(), OPTIMIZERS["averaged"])
        model.fit(X, Y, batch_size=4, verbose=0)
        assert state(model)[1] == STEPS

    on_chief(chief, num_ps=1)
