"""Saves by callbacks, one rank or all, in the strategy's scope and out of it, are read back.

``fit`` may be in the scope, as Keras's guide has it.
"""

import contextlib
import tempfile
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from helpers.tf.cases import Case  # noqa: E402 - TensorFlow may be missing
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat.testing.sets import repeats, takes_long, with_all  # noqa: E402

four_cpus()

pytestmark = [pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=120), takes_long()]
X = np.random.default_rng(0).normal(size=(21, 4))
Y = X.sum(1, keepdims=True)
ONE = Case(2, 1)


def built(normalization=keras.layers.BatchNormalization):
    """Return a compiled model; it runs eagerly since so few steps are not worth a graph."""
    keras.utils.set_random_seed(1)
    keras_dtype("float64")
    layers = [keras.layers.Dense(4), normalization(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile("adam", "mse", run_eagerly=True)
    return model


@contextlib.contextmanager
def made(is_in, layout=ONE):
    """Yield a strategy, its model and a folder, in the scope or out of it."""
    keras.utils.clear_session(free_memory=False)  # of what Keras has looked up, too
    with layout.ours() as strategy:
        folder = Path(strategy.communicator.bcast_object(tempfile.mkdtemp()))
        with strategy.scope():
            model = built()
        with strategy.scope() if is_in else contextlib.nullcontext():
            yield strategy, model, folder


def fit(model, *callbacks, epochs=2):
    options = {"batch_size": 8, "verbose": 0, "shuffle": False}
    return model.fit(X, Y, epochs=epochs, callbacks=list(callbacks), **options)


def state(model):
    return [one.numpy() for one in (*model.weights, *model.optimizer.variables)]


def assert_equal(weights, want):
    for one, other in zip(weights, want, strict=True):
        np.testing.assert_array_equal(one, other)


# ------------------------------------------------------------------------------------- callbacks

CALLBACKS = {
    "whole.keras": {},
    "some.weights.h5": {"save_weights_only": True},
    "best.keras": {"save_best_only": True, "monitor": "loss"},
    "batches.keras": {"save_freq": 2},
}


@pytest.mark.parametrize(
    "is_in",
    [
        pytest.param(True, id="in scope"),
        pytest.param(False, id="out of scope", marks=takes_long()),
    ],
)
def test_model_checkpoint(is_in):
    with made(is_in) as (_, model, folder):
        callbacks = [
            keras.callbacks.ModelCheckpoint(folder / name, **options)
            for name, options in CALLBACKS.items()
        ]
        fit(model, *callbacks)
        weights = model.get_weights()
        for name in CALLBACKS:
            model.set_weights([one + 1 for one in weights])
            model.load_weights(folder / name)
            assert_equal(model.get_weights(), weights)
        again = keras.models.load_model(folder / "whole.keras")
        assert_equal(state(again), state(model))


def interrupted(scope, **backup):
    """Return the epochs and the state of a training that was stopped and goes on."""

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    with scope:
        first, second = (built(keras.layers.LayerNormalization) for _ in range(2))
    with pytest.raises(KeyboardInterrupt):
        fit(first, keras.callbacks.BackupAndRestore(**backup), Stop())
    epochs = fit(second, keras.callbacks.BackupAndRestore(**backup)).epoch
    return epochs, state(second)


@pytest.mark.parametrize(
    ("freq", "is_in"),
    [
        pytest.param("epoch", True, id="epoch-in scope"),
        pytest.param("epoch", False, id="epoch-out of scope", marks=repeats()),
        pytest.param(2, True, id="2-in scope", marks=repeats()),
        pytest.param(2, False, id="2-out of scope", marks=repeats()),
    ],
)
def test_backup_and_restore(freq, is_in):
    alone = interrupted(contextlib.nullcontext(), backup_dir=tempfile.mkdtemp(), save_freq=freq)
    with made(is_in) as (strategy, _, folder):
        found = interrupted(strategy.scope(), backup_dir=folder / "backup", save_freq=freq)
        assert found[0] == alone[0]
        for one, want in zip(found[1], alone[1], strict=True):
            np.testing.assert_allclose(one, want, rtol=1e-6, atol=1e-12)


def test_average_weights_swapped_in_the_scope():
    """It is Keras's own test of this callback."""
    with made(True, Case(2, 2)) as (_, model, folder):
        sgd = keras.optimizers.SGD(use_ema=True, ema_momentum=0.5)
        model.compile(sgd, "mse", metrics=["mae"], run_eagerly=True)
        file = str(folder / "{epoch:1d}.keras")
        callbacks = [keras.callbacks.SwapEMAWeights(True), keras.callbacks.ModelCheckpoint(file)]
        model.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
        again = keras.models.load_model(folder / "2.keras")
        assert_equal(again.get_weights(), model.get_weights())
        told = [one.evaluate(X, Y, verbose=0, return_dict=True) for one in (model, again)]
        assert told[0] == told[1]


# -------------------------------------------------------------------------- one rank, or all ranks


def checkpoint(model):
    return tf.train.Checkpoint(model=model, optimizer=model.optimizer)


def managed(model, folder):
    parts = checkpoint(model)
    return parts, tf.train.CheckpointManager(parts, folder / "managed", max_to_keep=1)


def restore_managed(model, folder):
    parts, manager = managed(model, folder)
    parts.restore(manager.latest_checkpoint).assert_consumed()


SAVES = {
    "save": (
        lambda model, folder: model.save(folder / "a.keras"),
        lambda model, folder: model.load_weights(folder / "a.keras"),
    ),
    "save to h5": (
        lambda model, folder: model.save(folder / "a.h5"),
        lambda model, folder: model.load_weights(folder / "a.h5"),
    ),
    "save_weights": (
        lambda model, folder: model.save_weights(folder / "a.weights.h5"),
        lambda model, folder: model.load_weights(folder / "a.weights.h5"),
    ),
    "Checkpoint.save": (
        lambda model, folder: checkpoint(model).save(folder / "saved"),
        lambda model, folder: checkpoint(model).restore(folder / "saved-1").assert_consumed(),
    ),
    "Checkpoint.write": (
        lambda model, folder: checkpoint(model).write(folder / "written"),
        lambda model, folder: checkpoint(model).read(folder / "written").assert_consumed(),
    ),
    "CheckpointManager": (lambda model, folder: managed(model, folder)[1].save(), restore_managed),
}


@pytest.mark.parametrize(
    ("by", "is_in"),
    [
        pytest.param("the chief", True, id="the chief-in scope"),
        pytest.param("all", False, id="all-out of scope", marks=repeats()),
        pytest.param("the chief", False, id="the chief-out of scope", marks=repeats()),
        pytest.param("all", True, id="all-in scope", marks=repeats()),
    ],
)
def test_saved_and_read(by, is_in):
    with made(is_in, Case(2, 2)) as (strategy, model, folder):
        fit(model, epochs=1)
        want = state(model)
        for way, (save, restore) in SAVES.items():
            if strategy.is_chief or by == "all":
                save(model, folder)
            strategy.communicator.barrier()
            model.set_weights([one + 1 for one in model.get_weights()])
            if way.startswith("Checkpoint"):  # which has the optimizer's variables, too
                model.optimizer.iterations.assign_add(5)
            restore(model, folder)
            for one, other in zip(state(model), want, strict=True):
                np.testing.assert_array_equal(one, other, err_msg=way)
            strategy.communicator.barrier()
        if strategy.is_chief or by == "all":
            model.export(folder / "exported", verbose=False)
        fit(model, epochs=1)  # all ranks are still in step


@pytest.mark.mpi(ranks=2, timeout_s=120)
@pytest.mark.parametrize("layout", [Case(2, 2), Case(2, 1, "Backed")], ids=str)
def test_of_other_layouts(layout):
    with made(True, layout) as (strategy, model, folder):
        fit(model, keras.callbacks.ModelCheckpoint(folder / "a.keras"))
        if strategy.is_chief:
            checkpoint(model).save(folder / "saved")
        strategy.communicator.barrier()
        assert_equal(
            keras.models.load_model(folder / "a.keras").get_weights(), model.get_weights()
        )
