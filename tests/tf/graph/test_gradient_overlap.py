"""Gradients are reduced while backpropagation still runs, pack by pack, the last layer's first.

The gradient of the first layer waits until the collective of the last layer's gradient has begun:
if that waited for all gradients, neither would come.
"""

import time

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

pytestmark = pytest.mark.mpi(ranks=2, timeout_s=120)
FIRST, LAST = (8, 20), (20, 7)
LAST_BYTES = 20 * 7 * 4
WAIT_S = 20.0
OPTIONS = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=LAST_BYTES + 4)


class Gate:
    """A function that hands values through; their gradient waits for a later collective."""

    def __init__(self, communicator):
        self.communicator = communicator
        self.waits = []

    def latest(self):
        """Return the number of the last collective of the last layer's gradient."""
        records = self.communicator.records()
        numbers = [one.sequence for one in records if one.nbytes == LAST_BYTES]
        return np.int64(max(numbers, default=0))

    def note(self, x):
        return x, self.latest()

    def wait(self, gradient, before):
        end = time.monotonic() + WAIT_S
        while self.latest() <= before and time.monotonic() < end:
            time.sleep(1e-3)
        self.waits.append(int(self.latest()) > before)
        return gradient

    @tf.custom_gradient
    def __call__(self, x):
        # Not stateful, or TensorFlow would run the collectives after them.
        noted, before = tf.numpy_function(self.note, [x], [x.dtype, tf.int64], stateful=False)

        def backward(gradient):
            held = tf.numpy_function(self.wait, [gradient, before], tf.float32, stateful=False)
            return tf.ensure_shape(held, x.shape)

        return tf.ensure_shape(noted, x.shape), backward


def test_in_a_loop_of_ones_own():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        gate = Gate(s.communicator)
        first, last = tf.ones(FIRST), tf.ones(LAST)

        def replica_fn(x):
            with tf.GradientTape() as tape:
                tape.watch([first, last])
                loss = tf.reduce_sum(gate(x @ first) @ last)
            gradients = tape.gradient(loss, [first, last])
            return tf.distribute.get_replica_context().all_reduce("SUM", gradients, OPTIONS)

        step = tf.function(lambda x: s.run(replica_fn, (x,)))
        for _ in range(3):
            ours = step(tf.ones([5, 8]))
            assert (ours[0].numpy() == 2 * 5 * 7).all()
            assert (ours[1].numpy() == 2 * 5 * 8).all()
        assert gate.waits == [True] * 3


class Held(keras.layers.Layer):
    """A layer that is a `Gate`."""

    def __init__(self, gate):
        super().__init__()
        self.gate = gate

    def call(self, x):
        return self.gate(x)


@takes_long()
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_in_fit(optimizer):
    keras_dtype("float32")
    with distribute.MultiWorkerMirroredStrategy(communication_options=OPTIONS) as s:
        gate = Gate(s.communicator)
        with s.scope():
            first = keras.layers.Dense(FIRST[1])
            last = keras.layers.Dense(LAST[1], use_bias=False)
            model = keras.Sequential([keras.Input(FIRST[:1]), first, Held(gate), last])
            model.compile(optimizer, "mse")
        rows = np.random.default_rng(0).normal(size=(24, 8)).astype("float32")
        model.fit(rows, rows[:, :7], batch_size=8, epochs=1, verbose=0)
        assert gate.waits == [True] * 3
