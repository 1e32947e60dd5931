"""Legacy Keras (tf_keras) on ranks: the weights, logs, predictions and files of one process."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tf_keras")

from mpistrat.testing.launcher import run_job

PROGRAM = """
import json
import os
import sys

import numpy as np
import tensorflow as tf

import mpistrat.tensorflow as distribute

keras = tf.keras
assert keras.layers.Layer.__module__.startswith("tf_keras"), keras.layers.Layer
folder, out, devices = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.makedirs(folder, exist_ok=True)
(cpu,) = tf.config.list_physical_devices("CPU")
logical = [tf.config.LogicalDeviceConfiguration()] * devices
tf.config.set_logical_device_configuration(cpu, logical)
keras.backend.set_floatx("float64")
x = np.random.default_rng(0).normal(size=(45, 4))
y = x.sum(1, keepdims=True)
found = {}


class Stop(Exception):
    pass


class Stopping(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise Stop


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return {**super().train_step(data), "own": tf.reduce_sum(data[0])}


def made(kind=keras.Sequential):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        hidden = keras.layers.Dense(3, "tanh", kernel_regularizer="l2")
        model = kind([keras.Input((4,)), hidden, keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
    return model


def fit(model, epochs=3, callbacks=(), **options):
    options |= {"epochs": epochs, "callbacks": list(callbacks), "shuffle": False, "verbose": 0}
    return model.fit(x, y, batch_size=8, **options).history


def weights(model):
    return [one.tolist() for one in model.get_weights()]


def path(name):
    return os.path.join(folder, name)


with distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)]) as strategy:
    barrier = strategy.communicator.barrier
    model = made()
    found["before"] = model.predict(x, batch_size=8, verbose=0).tolist()
    history = fit(model, validation_data=(x[:13], y[:13]))
    found["fit"] = [history, weights(model)]
    found["evaluate"] = model.evaluate(x, y, batch_size=8, verbose=0)
    for rows in (45, 32, 3, 1):
        found[f"predict {rows}"] = model.predict(x[:rows], batch_size=8, verbose=0).tolist()
    data = tf.data.Dataset.from_tensor_slices(x).batch(7)
    found["predict dataset"] = model.predict(data, verbose=0).tolist()
    two = keras.Model(model.inputs, {"a": model.outputs[0], "b": model.layers[0].output})
    with strategy.scope():
        two.compile(steps_per_execution=2)
    found["predict two"] = {
        name: rows.tolist() for name, rows in two.predict(x, batch_size=8, verbose=0).items()
    }

    for name in ("a.h5", "a.keras"):
        model.save(path(name))
        barrier()
        found[name] = weights(keras.models.load_model(path(name)))
    for name in ("b.h5", "b.weights.h5", "prefix"):
        model.save_weights(path(name))
        barrier()
        again = made()
        again.load_weights(path(name))
        found[name] = weights(again)

    kept = path("kept-{epoch}.h5")
    fit(made(), 2, [keras.callbacks.ModelCheckpoint(kept)])
    barrier()
    found["kept"] = weights(keras.models.load_model(kept.format(epoch=2)))

    for epoch in (1, 2):
        try:
            model = made()
            backup = keras.callbacks.BackupAndRestore(path("backup"))
            logs = fit(model, 4, [backup, *([Stopping()] if epoch == 1 else [])])
        except Stop:
            barrier()
    found["restored"] = [logs, weights(model)]
    own = fit(made(OwnStep), 1)
    barrier()
    told = strategy.communicator.allgather_object(own["own"])
    assert told == [own["own"]] * strategy.communicator.size, told
    left = [name for _, names, _ in os.walk(folder) for name in names if "temp" in name]
    with open(f"{out}.{strategy.communicator.rank}", "w") as file:
        json.dump([found, left], file)
"""


def found(tmp_path, ranks, devices):
    """Return what each rank has found, and which temporary folders were left."""
    tmp_path.mkdir()
    out = tmp_path / "found"
    arguments = ["-c", PROGRAM, str(tmp_path / "files"), str(out), str(devices)]
    run_job(arguments, ranks, 150, {"TF_USE_LEGACY_KERAS": "1"}).check()
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(ranks)]


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


@pytest.mark.deadline(600)
def test_what_legacy_keras_does_in_one_process(tmp_path):
    ((want, _),) = found(tmp_path / "1", 1, 1)
    for ranks, devices in ((2, 1), (3, 1), (2, 2)):
        for mine, left in found(tmp_path / f"{ranks}x{devices}", ranks, devices):
            assert not left
            for name, value in want.items():
                assert_close(mine[name], value, f"{ranks}x{devices} {name}")
