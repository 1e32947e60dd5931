"""Keras on ranks differs from one process where it does so under TensorFlow's strategies."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

pytestmark = [pytest.mark.mpi(ranks=2, timeout_s=90), takes_long()]
X = np.random.default_rng(0).normal(size=(9, 3)).astype("float32")
Y = X.sum(1, keepdims=True)
WORDS = np.array([[1, 2, 3, 4], [5, 0, 0, 0]])  # a row of four steps, and one of a single step


class OwnStep(keras.Sequential):
    def train_step(self, data):
        x, y = data
        return {"mine": tf.reduce_mean((self(x) - y) ** 2)}


def test_masked_steps_are_averaged_by_replica():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        with s.scope():
            words = keras.layers.Embedding(6, 1, mask_zero=True, embeddings_initializer="zeros")
            model = keras.Sequential([keras.Input((4,), dtype="int32"), words])
            model.compile("sgd", "mae")
        labels = np.array([[1.0] * 4, [3.0] * 4])[..., None]
        found = model.evaluate(WORDS, labels, batch_size=2, verbose=0)
        assert found == pytest.approx((1 + 3) / 2)  # in one process (4 * 1 + 1 * 3) / 5
    drop(s)


def test_logs_of_a_train_step_of_ones_own_are_nan_without_rows():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        with s.scope():
            model = OwnStep([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        logs = model.fit(X, Y, batch_size=4, verbose=0).history  # the last batch has one row
        assert np.isnan(logs["mine"]).all()
    drop(s)


def test_predict_on_batch_takes_what_each_rank_is_given():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        with s.scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        assert model.predict_on_batch(X[:5]).shape == (10, 1)
    drop(s)


def test_the_learning_rate_is_a_mirrored_variable():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        with s.scope():
            optimizer = keras.optimizers.SGD(0.25)
        with pytest.raises(TypeError):
            float(optimizer.learning_rate)
        assert float(optimizer.learning_rate.numpy()) == 0.25
    drop(s)
