"""KerasTuner's searches on ranks give one process's results."""

import contextlib
import os
import sys
import tempfile
import time
import types
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

X = np.random.default_rng(0).normal(size=(21, 3))
Y = X.sum(1, keepdims=True)
TUNERS = {
    "RandomSearch": (1, {"max_trials": 2}),
    "BayesianOptimization": (1, {"max_trials": 3, "num_initial_points": 2}),
    "Hyperband": (2, {"max_epochs": 2, "factor": 2}),
}


def let_keras_tuner_import(patch):
    """Show it scikit-learn and SciPy, which are hidden from these tests, and a TensorBoard.

    It imports TensorBoard in each search, for callbacks that these tests have not.
    """
    shown = [path for path in sys.path if Path(path).name != "hidden_from_keras"]
    patch.setattr(sys, "path", shown)
    path = "tensorboard"
    for part in ("", ".plugins", ".hparams", ".api"):
        path += part
        patch.setitem(sys.modules, path, types.ModuleType(path))
    sys.modules["tensorboard.plugins.hparams"].api = sys.modules[path]


def build(hp):
    keras.utils.set_random_seed(1)
    hidden = keras.layers.Dense(hp.Int("units", 1, 4), "tanh")
    model = keras.Sequential([keras.Input((3,)), hidden, keras.layers.Dense(1)])
    sgd = keras.optimizers.SGD(hp.Float("rate", 1e-3, 1e-1, sampling="log"))
    model.compile(sgd, "mse", run_eagerly=True)
    return model


def searched(kind, folder, strategy):
    """Return what a search has found, of which the last are the names of files."""
    epochs, options = TUNERS[kind.__name__]
    options = options | {"objective": "val_loss", "seed": 3, "distribution_strategy": strategy}
    tuner = kind(build, directory=folder, project_name="search", **options)
    data = {"x": X, "y": Y, "validation_data": (X[:16], Y[:16])}
    tuner.search(**data, epochs=epochs, batch_size=16, verbose=0, shuffle=False)
    rows = tuner.get_best_models()[0].predict(X[:5], verbose=0)
    best = tuner.get_best_hyperparameters()[0].values
    trials = tuner.oracle.get_best_trials(9)
    files = set(os.listdir(Path(folder) / "search" / f"trial_{trials[0].trial_id}"))
    known = {"build_config.json", "checkpoint.weights.h5", "trial.json"}
    scores = [trial.score for trial in trials]
    return [best[key] for key in ("units", "rate")], scores, rows, sorted(known & files)


@takes_long()
@pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=120)
@pytest.mark.parametrize("name", TUNERS)
def test_searches_give_the_results_of_one_process(name):
    keras_dtype("float64")
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        let_keras_tuner_import(patch)
        kind = getattr(pytest.importorskip("keras_tuner"), name)
        s = stack.enter_context(distribute.MirroredStrategy(["CPU:0"]))
        # The chief makes the reference alone: without a strategy Keras sees one process.
        alone = searched(kind, tempfile.mkdtemp(), None) if s.is_chief else None
        *want, files = s.communicator.bcast_object(alone)
        folder = s.communicator.bcast_object(tempfile.mkdtemp())
        *found, mine = searched(kind, folder, s)
        for one, other in zip(found, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4)
        assert mine == files
        s.communicator.barrier()  # who is behind has temporary folders still
        assert not [path for path in Path(folder).rglob("*") if "temp" in path.name]


@pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=60)
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


@takes_long()
@pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=60)
def test_what_the_chief_writes_in_fit_is_there_after_it():
    with distribute.MirroredStrategy(["CPU:0"]) as s:
        path = Path(s.communicator.bcast_object(tempfile.mkdtemp())) / "file"
        with s.scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        model.fit(np.ones((6, 3)), np.ones((6, 1)), verbose=0, callbacks=[Slow(path)])
        assert path.read_text() == "done"
