"""Keras's ``fit`` on ranks with GPUs gives the losses of one process on its CPU.

Reference: Keras without a strategy, on the whole batches.
"""

import numpy as np
import pytest
from mpi4py import MPI

cupy = pytest.importorskip("cupy")
tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.gpu.devices import needs_gpus  # noqa: E402
from helpers.tf.gpu_device import carried_on_gpus, gpus_of_tensorflow  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

pytestmark = takes_long(unit="file")

gpus_of_tensorflow()

GRADIENTS_BYTES = (8 * 16 + 16 + 16 + 1) * 4
STEPS = 2 * 4
# Not int32: TensorFlow keeps variables of it in the host's memory.
DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "uint8", "complex64")


def model():
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)]
    made = keras.Sequential([keras.layers.Input((8,)), *layers])
    # What XLA compiles is combined over the host.
    made.compile(optimizer="sgd", loss="mse", metrics=["mae"], jit_compile=False)
    return made


def fit(made):
    """Return the loss and the mean error of each epoch."""
    x = np.random.default_rng(0).standard_normal((64, 8), "float32")
    y = x.sum(axis=1, keepdims=True)
    seen = made.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0).history
    return [*seen["loss"], *seen["mae"]]


def trained(s):
    """Return what `fit` does of a model of the strategy, whose gradients stay on GPUs."""
    with s.scope():
        made = model()
    with carried_on_gpus() as carried:
        found = fit(made)
    assert sum(carried) >= STEPS * GRADIENTS_BYTES
    for weight in made.trainable_variables:
        assert all("GPU" in one.device for one in s.experimental_local_results(weight.value))
    return found


def on_the_cpu():
    with tf.device("CPU:0"):
        return fit(model())


@pytest.mark.mpi(ranks=2, timeout_s=120)
def test_two_ranks_share_a_gpu():
    with distribute.MirroredStrategy(["GPU:0"]) as s:
        found = trained(s)
    np.testing.assert_allclose(found, on_the_cpu(), rtol=1e-5)


@pytest.mark.mpi(ranks=2, timeout_s=120, alone=True)
def test_two_ranks_have_gpus_of_their_own():
    needs_gpus(2)
    each = cupy.cuda.runtime.getDeviceCount() // 2
    with distribute.MirroredStrategy() as s:
        assert s.num_replicas_in_sync == 2 * each
        assert cupy.cuda.Device().id == MPI.COMM_WORLD.rank * each
        found = trained(s)
    np.testing.assert_allclose(found, on_the_cpu(), rtol=1e-5)


@pytest.mark.mpi(ranks=2, timeout_s=120)
@pytest.mark.parametrize("dtype", DTYPES)
def test_variables_on_gpus_are_updated_there(dtype):
    with tf.device("GPU:0"):
        variable = tf.Variable(tf.constant([5, 7], dtype))
        before = variable.read_value()
        variable.assign_add(tf.constant([3, 1], dtype))
        variable.assign_sub(tf.constant([1, 4], dtype))
    assert "GPU:0" in variable.device
    assert variable.numpy().tolist() == [7, 4]
    assert before.numpy().tolist() == [5, 7]
