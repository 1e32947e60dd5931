"""Optimizers of arrays move as those of Keras do."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import keras_dtype  # noqa: E402
from mpistrat import optimizers  # noqa: E402
from mpistrat.testing.sets import takes_long  # noqa: E402

# Keras rounds what it is given to float32, so these are numbers that float32 has.
CASES = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.875}),
    "nesterov": ("SGD", {"momentum": 0.875, "nesterov": True}),
    "adagrad": ("Adagrad", {"initial_accumulator_value": 0.125, "epsilon": 2**-20}),
    "adagrad_from_0": ("Adagrad", {"initial_accumulator_value": 0.0, "epsilon": 2**-10}),
    "adam": ("Adam", {"beta_1": 0.875, "beta_2": 1 - 2**-10, "epsilon": 2**-20}),
    "amsgrad": ("Adam", {"beta_1": 0.75, "beta_2": 0.875, "epsilon": 0.125, "amsgrad": True}),
}


def moved(optimizer, weights, gradients):
    for gradient in gradients:
        optimizer.apply_gradients([(gradient, weights)])
    return weights.numpy()


@takes_long()
@pytest.mark.parametrize(("name", "how"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("of_rows", [False, True], ids=["all", "rows"])
def test_weights_are_those_of_keras(name, how, of_rows):
    random = np.random.default_rng(7)
    start = random.normal(size=(6, 3))
    # Keras takes a row that comes twice for two rows; ours is their sum, as TensorFlow's was.
    rows = [random.permutation(6)[:4] if of_rows else np.arange(6) for _ in range(20)]
    values = [random.normal(size=(len(r), 3)) for r in rows]
    pairs = list(zip(values, rows, strict=True))
    keras_dtype("float64")
    theirs = moved(
        getattr(keras.optimizers, name)(0.0625, **how),
        tf.Variable(start),
        [tf.IndexedSlices(v, r, (6, 3)) if of_rows else tf.constant(v) for v, r in pairs],
    )
    ours = moved(
        getattr(optimizers, name)(0.0625, **how),
        mpistrat.Variable(start),
        [mpistrat.IndexedSlices(v, r, (6, 3)) if of_rows else v for v, r in pairs],
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
