"""Keras models, and what is made in or out of a scope, as TensorFlow has it (B10, B11, B68).

Not under TensorFlow's strategy of several processes, whose `fit` fails.
"""

import tempfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import keras  # noqa: E402 - it comes with TensorFlow

from helpers.tf.cases import (  # noqa: E402
    EVERYWHERE,
    Rows,
    of_tensorflow,
    same,
    steady,
)
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

pytestmark = [pytest.mark.mpi(ranks=2, timeout_s=60), takes_long()]
SKIPPED = {"Central"} if with_all() else {"Central", "OneDevice"}  # TensorFlow's own cannot fit
KERAS = [case for case in EVERYWHERE if case.kind not in SKIPPED]
X = np.arange(8.0, dtype=np.float32).reshape(8, 1) / 4
Y = 2 * X


class Watched(keras.layers.Layer):
    """Multiplies by a number, and notes whether it is called under a strategy."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, x):
        seen.append(tf.distribute.has_strategy())
        return x * self.scale


seen = []


@same(KERAS)
def test_b10_a_model_remembers_its_scope(s):
    with s.scope():
        model = keras.Sequential([keras.Input([1]), Watched()])
        optimizer = keras.optimizers.SGD(0.125)
    model.compile(optimizer, "mse", run_eagerly=True)  # not worth a graph
    del seen[:]
    model(tf.ones([2, 1]))
    called = list(seen)
    losses = model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
    with s.scope():
        more = model.fit(X, Y, batch_size=4, shuffle=False, verbose=0).history["loss"]
    return {
        "called under a strategy": called,
        "remembered": model.distribute_strategy is of_tensorflow(s),
        "losses": [f"{loss:.5f}" for loss in losses + more],
        "evaluated": f"{model.evaluate(X, Y, batch_size=4, verbose=0):.5f}",
        "predicted": [f"{row:.5f}" for row in model.predict(X, batch_size=4, verbose=0)[:, 0]],
        "saved": saved_and_loaded(model),
    }


def saved_and_loaded(model):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.keras"
        model.save(file)
        again = keras.models.load_model(file, custom_objects={"Watched": Watched})
    return bool(tf.reduce_all(again(X) == model(X)))


@same()
def test_b11_datasets_and_functions_are_made_in_or_out_of_a_scope(s):
    found = []
    for scope in (nullcontext, s.scope):
        with scope():
            dataset = steady(tf.data.Dataset.range(8).batch(4))
            steps = s.experimental_distribute_dataset(dataset)
            step = tf.function(lambda batch: s.run(lambda x: x * 2, args=(batch,)))
        found += [Rows([step(batch) for batch in steps])]
        with s.scope():
            found += [Rows([step(batch) for batch in steps])]
    return found


@same()
def test_b68_operations_with_a_state_in_a_dataset(s):
    def with_noise(i):
        return i, tf.random.uniform([]) < 2.0, tf.random.uniform([3])

    dataset = steady(tf.data.Dataset.range(8).map(with_noise).batch(4))
    steps = list(s.experimental_distribute_dataset(dataset))
    lengths = [s.run(lambda i, sure, noise: tf.shape(noise)[0], args=step) for step in steps]
    return [
        Rows([numbers for numbers, _, _ in steps]),
        Rows([sure for _, sure, _ in steps]),
        [s.reduce("SUM", length, axis=None) for length in lengths],
    ]
