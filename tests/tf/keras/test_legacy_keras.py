"""Legacy Keras (tf_keras) on ranks: the weights, logs, predictions and files of one process."""

import json

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tf_keras")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import repeats, takes_long

PROGRAM = """
import contextlib
import functools
import json
import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

import mpistrat.tensorflow as distribute

keras = tf.keras
assert keras.layers.Layer.__module__.startswith("tf_keras"), keras.layers.Layer
(cpu,) = tf.config.list_physical_devices("CPU")
logical = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, logical)
keras.backend.set_floatx("float64")
x = np.random.default_rng(0).normal(size=(45, 4))
y = x.sum(1, keepdims=True)


class Stop(Exception):
    pass


class Stopping(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise Stop


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return {**super().train_step(data), "own": tf.reduce_sum(data[0])}


# Eager where files are the question: so few steps are not worth a graph.
def made(kind=keras.Sequential, is_eager=True):
    keras.utils.set_random_seed(1)
    hidden = keras.layers.Dense(3, "tanh", kernel_regularizer="l2")
    model = kind([keras.Input((4,)), hidden, keras.layers.Dense(1)])
    adam = keras.optimizers.Adam(0.05)
    model.compile(adam, "mse", metrics=["mae"], run_eagerly=is_eager)
    return model


def fit(model, epochs=3, callbacks=(), **options):
    options |= {"epochs": epochs, "callbacks": list(callbacks), "shuffle": False, "verbose": 0}
    return model.fit(x, y, batch_size=8, **options).history


def weights(model):
    return [one.tolist() for one in model.get_weights()]


# What functions give that Keras has traced.
def graphs(scope):
    found = {}
    with scope():
        model = made(is_eager=False)
    found["before"] = model.predict(x, batch_size=8, verbose=0).tolist()
    history = fit(model, validation_data=(x[:13], y[:13]))
    found["fit"] = [history, weights(model)]
    found["evaluate"] = model.evaluate(x, y, batch_size=8, verbose=0)
    for rows in (45, 32, 3, 1):
        found[f"predict {rows}"] = model.predict(x[:rows], batch_size=8, verbose=0).tolist()
    data = tf.data.Dataset.from_tensor_slices(x).batch(7)
    found["predict dataset"] = model.predict(data, verbose=0).tolist()
    two = keras.Model(model.inputs, {"a": model.outputs[0], "b": model.layers[0].output})
    with scope():
        two.compile(steps_per_execution=2)
    found["predict two"] = {
        name: rows.tolist() for name, rows in two.predict(x, batch_size=8, verbose=0).items()
    }
    return found


# What is read from files, and a training that was stopped and goes on.
def files(scope, barrier, path):
    found = {}
    with scope():
        model = made()
    fit(model, 1)
    for name in ("a.h5", "a.keras"):
        model.save(path(name))
        barrier()
        found[name] = weights(keras.models.load_model(path(name)))
    for name in ("b.h5", "b.weights.h5", "prefix"):
        model.save_weights(path(name))
        barrier()
        with scope():
            again = made()
        again.load_weights(path(name))
        found[name] = weights(again)

    with scope():
        model = made()
    fit(model, 2, [keras.callbacks.ModelCheckpoint(path("kept-{epoch}.h5"))])
    barrier()
    found["kept"] = weights(keras.models.load_model(path("kept-2.h5")))

    for epoch in (1, 2):
        with scope():
            model = made()
        backup = keras.callbacks.BackupAndRestore(path("backup"))
        try:
            logs = fit(model, 4, [backup, *([Stopping()] if epoch == 1 else [])])
        except Stop:
            barrier()
    found["restored"] = [logs, weights(model)]
    return found


# One process, without a strategy.
def alone():
    with tempfile.TemporaryDirectory() as folder:
        path = functools.partial(os.path.join, folder)
        return graphs(contextlib.nullcontext) | files(contextlib.nullcontext, lambda: None, path)


def assert_close(mine, want, where):
    if isinstance(want, dict):
        assert mine.keys() == want.keys(), where
        for key, value in want.items():
            assert_close(mine[key], value, f"{where} {key}")
    elif isinstance(want, list) and isinstance(want[0], (list, dict)):
        assert len(mine) == len(want), where
        for pair in zip(mine, want, strict=True):
            assert_close(*pair, where)
    else:
        np.testing.assert_allclose(mine, want, rtol=1e-7, atol=1e-12, err_msg=where)


# Check so many devices a rank against one process; return what that gave.
def check(devices, want):
    with distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)]) as strategy:
        communicator = strategy.communicator
        # The chief makes the reference alone: without a strategy Keras sees one process.
        want = want or communicator.bcast_object(alone() if strategy.is_chief else None)
        keras.backend.clear_session()  # or that rank's layers would have other names
        folder = communicator.bcast_object(tempfile.mkdtemp(dir=sys.argv[1]))
        path = functools.partial(os.path.join, folder)
        found = graphs(strategy.scope) | files(strategy.scope, communicator.barrier, path)
        assert_close(found, want, f"{communicator.size}x{devices}")

        with strategy.scope():
            model = made(OwnStep, is_eager=False)
        own = fit(model, 1)["own"]
        told = communicator.allgather_object(own)
        assert told == [own] * communicator.size, told
        left = [name for _, names, _ in os.walk(folder) for name in names if "temp" in name]
        assert not left, left
    return want


want = None
for devices in json.loads(sys.argv[2]):
    want = check(devices, want)
print("checked")
"""


@takes_long()
@pytest.mark.deadline(300)
@pytest.mark.parametrize(
    ("ranks", "devices"), [(2, [1, 2]), pytest.param(3, [1], marks=repeats())], ids=["2", "3"]
)
def test_what_legacy_keras_does_in_one_process(tmp_path, ranks, devices):
    arguments = ["-c", PROGRAM, str(tmp_path), json.dumps(devices)]
    result = run_job(arguments, ranks, 150, {"TF_USE_LEGACY_KERAS": "1"}).check()
    assert [rank.stdout for rank in result.ranks] == ["checked\n"] * ranks
