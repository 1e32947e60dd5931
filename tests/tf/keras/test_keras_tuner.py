"""KerasTuner's searches on ranks give one process's results."""

import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.testing.launcher import run_job  # noqa: E402
from mpistrat.testing.placement import with_long  # noqa: E402

four_cpus()

PROGRAM = """
import json
import os
import sys
import types

import keras
import numpy as np

try:
    import tensorboard.plugins.hparams.api
except ImportError:  # KerasTuner imports it for callbacks that this program has not
    path = "tensorboard"
    for part in ("", ".plugins", ".hparams", ".api"):
        path += part
        sys.modules[path] = types.ModuleType(path)
    sys.modules["tensorboard.plugins.hparams"].api = sys.modules[path]

import keras_tuner

import mpistrat.tensorflow as distribute

folder, out = sys.argv[1:]
keras.config.set_floatx("float64")
x = np.random.default_rng(0).normal(size=(44, 3))
y = x.sum(1, keepdims=True)


def build(hp):
    keras.utils.set_random_seed(1)
    hidden = keras.layers.Dense(hp.Int("units", 1, 4), "tanh")
    model = keras.Sequential([keras.Input((3,)), hidden, keras.layers.Dense(1)])
    sgd = keras.optimizers.SGD(hp.Float("rate", 1e-3, 1e-1, sampling="log"))
    model.compile(sgd, "mse", run_eagerly=True)
    return model


def searched(kind, epochs, **options):
    name = kind.__name__
    options |= {"objective": "val_loss", "seed": 3, "distribution_strategy": strategy}
    tuner = kind(build, directory=folder, project_name=name, **options)
    data = {"x": x, "y": y, "validation_data": (x[:16], y[:16])}
    tuner.search(**data, epochs=epochs, batch_size=16, verbose=0, shuffle=False)
    rows = tuner.get_best_models()[0].predict(x[:5], verbose=0)
    best = tuner.get_best_hyperparameters()[0].values
    trials = tuner.oracle.get_best_trials(9)
    files = sorted(os.listdir(os.path.join(folder, name, "trial_" + trials[0].trial_id)))
    known = {"build_config.json", "checkpoint.weights.h5", "trial.json"}
    found = [best[key] for key in ("units", "rate")], [trial.score for trial in trials]
    return [*found, rows.tolist(), sorted(known & set(files))]


with distribute.MirroredStrategy(["CPU:0"]) as strategy:
    found = [
        searched(keras_tuner.RandomSearch, 1, max_trials=2),
        searched(keras_tuner.BayesianOptimization, 1, max_trials=3, num_initial_points=2),
        searched(keras_tuner.Hyperband, 3, max_epochs=3, factor=3),
    ]
    strategy.communicator.barrier()
    left = [name for _, names, _ in os.walk(folder) for name in names if "temp" in name]
    with open(f"{out}.{strategy.communicator.rank}", "w") as file:
        json.dump([found, left], file)
"""


def searched(tmp_path, ranks):
    """Return what each rank has found, and which temporary folders were left."""
    out = tmp_path / "found"
    out.parent.mkdir()
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    with_scipy = os.pathsep.join(path for path in paths if Path(path).name != "hidden_from_keras")
    arguments = ["-c", PROGRAM, str(tmp_path / "search"), str(out)]
    run_job(arguments, ranks, 200, {"PYTHONPATH": with_scipy}).check()
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(ranks)]


@pytest.mark.deadline(650)
def test_searches_give_the_results_of_one_process(tmp_path):
    pytest.importorskip("keras_tuner")
    (want, _), *_ = searched(tmp_path / "1", 1)
    for ranks in (2, 3):
        for found, left in searched(tmp_path / str(ranks), ranks):
            assert not left
            for (best, scores, rows, files), mine in zip(want, found, strict=True):
                np.testing.assert_allclose(mine[0], best, rtol=1e-4)
                np.testing.assert_allclose(mine[1], scores, rtol=1e-4)
                np.testing.assert_allclose(mine[2], rows, rtol=1e-4)
                assert mine[3] == files


@pytest.mark.mpi(ranks=[2, 3] if with_long() else 2, timeout_s=60)
@pytest.mark.parametrize("name", ["MirroredStrategy", "CentralStorageStrategy"])
def test_private_names_that_libraries_read(name):
    with getattr(distribute, name)(["CPU:0", "CPU:1"]) as s:
        extended = s.extended
        assert extended._task_id == s.communicator.rank
        assert extended._task_type == "worker"
        assert extended._num_devices_per_worker == 2


class Slow(keras.callbacks.Callback):
    """Write a file at the end, on the chief alone and late."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_train_end(self, logs=None):
        if self.model.distribute_strategy.is_chief:
            time.sleep(0.5)
            self.path.write_text("done")


@pytest.mark.mpi(ranks=[2, 3] if with_long() else 2, timeout_s=60)
def test_what_the_chief_writes_in_fit_is_there_after_it():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        path = Path(s.communicator.bcast_object(tempfile.mkdtemp())) / "file"
        with s.scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        model.fit(np.ones((6, 3)), np.ones((6, 1)), verbose=0, callbacks=[Slow(path)])
        assert path.read_text() == "done"
