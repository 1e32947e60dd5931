"""Losses that return one number: TensorFlow's arithmetic, with a warning that says what it is."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat.tensorflow.keras import losses  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

four_cpus()

pytestmark = [pytest.mark.mpi(ranks=2, timeout_s=90), takes_long()]
X = np.random.default_rng(0).normal(size=(12, 3))
Y = X.sum(1, keepdims=True)


def squares(y, p):
    return tf.reduce_mean((y - p) ** 2)


def per_row(y, p):
    return tf.reduce_mean((y - p) ** 2, axis=-1)


def divided(y, p):
    return squares(y, p) / tf.distribute.get_strategy().num_replicas_in_sync


@pytest.mark.parametrize(
    ("loss", "is_alike"),
    [(squares, False), (per_row, True), (keras.losses.Dice(), False), ("mse", True)],
    ids=["scalar", "per row", "of Keras", "of Keras per row"],
)
def test_a_loss_of_one_number_is_told(loss, is_alike):
    told = []
    keras_dtype("float32")
    with pytest.MonkeyPatch.context() as patch, distribute.MirroredStrategy(["CPU:0"]) as s:
        patch.setattr(losses, "warn_once", lambda log, key, text: told.append(text))
        with s.scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile("sgd", loss)
        model.fit(X, Y, batch_size=6, verbose=0)
        assert (told == []) == is_alike
        assert all("gradients and the logged loss are 2 times" in text for text in told)
        if loss is squares:
            assert "loss 'squares'" in told[0]
    drop(s)


@pytest.mark.parametrize(("loss", "times"), [(squares, 2), (divided, 1), (per_row, 1)])
def test_gradients_of_a_loss_of_one_number_are_added_as_under_tensorflow(loss, times):
    keras_dtype("float64")
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        with s.scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False)])
            model.compile(keras.optimizers.SGD(0.1), loss)
        (start,) = model.get_weights()
        model.fit(X, Y, batch_size=len(X), verbose=0, shuffle=False)
        gradient = 2 * X.T @ (X @ start - Y) / len(X)
        (found,) = model.get_weights()
        np.testing.assert_allclose(found, start - 0.1 * times * gradient, rtol=1e-9)
    keras_dtype("float32")
    drop(s)
