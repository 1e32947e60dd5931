"""On GPUs, too, gradients are reduced while backpropagation still runs, the last layer's first.

The gradient of the first layer waits until the collective of the last layer's gradient has begun:
if that waited for all gradients, neither would come.
"""

import time

import numpy as np
import pytest

pytest.importorskip("cupy")
tf = pytest.importorskip("tensorflow")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.gpu_device import carried_on_gpus, gpus_of_tensorflow  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

gpus_of_tensorflow()

pytestmark = [pytest.mark.mpi(ranks=2, timeout_s=120), takes_long(unit="file")]
FIRST, LAST = (8, 20), (20, 7)
LAST_BYTES = 20 * 7 * 4
WAIT_S = 20.0
OPTIONS = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=LAST_BYTES + 4)


def test_the_last_layers_gradient_is_reduced_before_the_first_ones_is_computed():
    with distribute.MirroredStrategy(["GPU:0"]) as s, carried_on_gpus() as carried:
        first, last = tf.ones(FIRST), tf.ones(LAST)
        came = []

        def wait(gradient):
            """Wait for the collective of this step, unless it waits for this function."""
            end = time.monotonic() + WAIT_S
            while carried.count(LAST_BYTES) <= len(came) and time.monotonic() < end:
                time.sleep(1e-3)
            came.append(carried.count(LAST_BYTES))
            return gradient

        @tf.custom_gradient
        def gate(x):
            def backward(gradient):
                # Not stateful, or TensorFlow would run the collectives after it.
                held = tf.numpy_function(wait, [gradient], tf.float32, stateful=False)
                return tf.ensure_shape(held, x.shape)

            return tf.identity(x), backward

        def replica_fn(x):
            with tf.GradientTape() as tape:
                tape.watch([first, last])
                loss = tf.reduce_sum(gate(x @ first) @ last)
            gradients = tape.gradient(loss, [first, last])
            return tf.distribute.get_replica_context().all_reduce("SUM", gradients, OPTIONS)

        step = tf.function(lambda x: s.run(replica_fn, (x,)))
        for _ in range(3):
            ours = step(tf.ones([5, 8]))
            np.testing.assert_array_equal(ours[0].numpy(), np.full(FIRST, 2 * 5 * 7))
            np.testing.assert_array_equal(ours[1].numpy(), np.full(LAST, 2 * 5 * 8))
        assert came == [1, 2, 3]
