"""Saving by several ranks: files are whole, and training resumes as if it had not been stopped."""

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat  # noqa: E402 - TensorFlow may be missing
import mpistrat.tensorflow as distribute  # noqa: E402
from helpers.tf.process import four_cpus, keras_dtype  # noqa: E402
from mpistrat.errors import CommunicationTimeoutError  # noqa: E402
from mpistrat.tensorflow import shared_files  # noqa: E402
from mpistrat.testing.launcher import run_job  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

RANKS = 3 if with_all() else 2
X = np.random.default_rng(0).normal(size=(45, 8))
Y = (X.sum(1) > 0).astype(float)


def made(kind=keras.Sequential):
    """Return a compiled model; it runs eagerly since so few steps are not worth a graph."""
    keras.utils.set_random_seed(1)
    keras_dtype("float64")
    model = kind([keras.Input((8,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(1)])
    adam = keras.optimizers.Adam(0.05)
    model.compile(adam, "mse", metrics=["mae"], run_eagerly=True)
    adam.build(model.trainable_variables)
    return model


def epochs(model, first, last, callbacks=()):
    options = {"epochs": last, "initial_epoch": first, "callbacks": list(callbacks)}
    return model.fit(X, Y, batch_size=16, verbose=0, shuffle=False, **options)


def world_folder(communicator):
    return Path(communicator.bcast_object(tempfile.mkdtemp()))


# ---------------------------------------------------------------- other numbers of ranks go on


def checkpoint(model, folder):
    parts = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    return parts, tf.train.CheckpointManager(parts, folder, max_to_keep=1)


def save_checkpoint(model, folder):
    checkpoint(model, folder)[1].save()


def restore_checkpoint(folder):
    model = made()
    parts, manager = checkpoint(model, folder)
    parts.restore(manager.latest_checkpoint).assert_consumed()
    return model


WAYS = {
    "checkpoint": (save_checkpoint, restore_checkpoint),
    "keras": (
        lambda model, folder: model.save(folder / "a.keras"),
        lambda folder: keras.models.load_model(folder / "a.keras"),
    ),
}


@contextlib.contextmanager
def first_ranks(world, number):
    """Enter the scope of a strategy of the first ranks; yield whether this is one of them."""
    from mpi4py import MPI

    color = 0 if world.rank < number else 1
    with (
        distribute.MirroredStrategy(["CPU:0"], comm=MPI.COMM_WORLD.Split(color)) as own,
        own.scope(),
    ):
        yield color == 0
    world.barrier()


def state(model):
    return [one.numpy() for one in (*model.weights, *model.optimizer.variables)]


@functools.cache
def uninterrupted():
    model = made()
    epochs(model, 0, 2)
    return state(model)


def assert_close(model, want):
    for mine, one in zip(state(model), want, strict=True):
        np.testing.assert_allclose(mine, one, rtol=1e-6, atol=1e-12)


OTHER_NUMBERS = [("checkpoint", 2, [1])]
if with_all():
    OTHER_NUMBERS = [("checkpoint", 2, [3, 1]), ("checkpoint", 3, [2])]
    OTHER_NUMBERS += [("keras", 2, [3, 1]), ("keras", 1, [2])]


@takes_long()
@pytest.mark.mpi(ranks=RANKS, timeout_s=120)
@pytest.mark.parametrize(("way", "before", "after"), OTHER_NUMBERS)
def test_other_numbers_of_ranks_go_on(way, before, after):
    save, restore = WAYS[way]
    want = uninterrupted()
    with distribute.MirroredStrategy(["CPU:0"]) as everyone:
        world = everyone.communicator
        folder = world_folder(world)
        with first_ranks(world, before) as is_in:
            if is_in:
                model = made()
                epochs(model, 0, 1)
                save(model, folder)
        for number in after:
            with first_ranks(world, number) as is_in:
                if is_in:
                    model = restore(folder)
                    epochs(model, 1, 2)
                    assert_close(model, want)


# ------------------------------------------------------------------------------------ whole files


def read_all(model, folder):
    """Save in all ways, read what was saved at once, and return the weights found."""
    parts, _ = checkpoint(model, folder)
    parts.read(parts.write(folder / "b" / "model")).assert_consumed()
    model.save(folder / "a.keras")
    model.save_weights(folder / "a.weights.h5")
    tf.saved_model.save(model, folder / "saved")
    model.export(folder / "exported", verbose=False)
    model.load_weights(folder / "a.weights.h5")
    exported = tf.saved_model.load(folder / "exported")
    np.testing.assert_allclose(exported.serve(X), model(X).numpy(), rtol=1e-12)
    tf.saved_model.load(folder / "saved")
    saved = tf.train.load_checkpoint(folder / "saved" / "variables" / "variables")
    names = [name for name in saved.get_variable_to_shape_map() if name.endswith("_VALUE")]
    weights = keras.models.load_model(folder / "a.keras").get_weights()
    return weights, [saved.get_tensor(name) for name in names]


def assert_whole(found, want):
    weights, saved = found
    for weight, one in zip(weights, want, strict=True):
        assert (weight == one).all()
    assert {one.tobytes() for one in want} <= {one.tobytes() for one in saved}


@takes_long()
@pytest.mark.mpi(ranks=RANKS, timeout_s=120)
def test_what_all_ranks_save_to_one_path_is_whole():
    from mpi4py import MPI  # not our communicator: saves are told apart by its calls

    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        communicator = strategy.communicator
        folder = world_folder(communicator)
        with strategy.scope():
            model = made()
        want = [weight.numpy() for weight in model.weights]
        for turn in (1, 2):
            model.set_weights([turn * weight for weight in want])
            assert_whole(read_all(model, folder), model.get_weights())
            MPI.COMM_WORLD.Barrier()  # or else who is ahead saves what the others are to read
        if strategy.is_chief:
            read_all(model, folder)  # one rank alone may save, too
        model.save(folder / f"{communicator.rank}.keras")
        communicator.barrier()
        left = {file.name for file in folder.rglob("*")}
        assert not [name for name in left if name.startswith(".") or "temp" in name]
        assert {f"{rank}.keras" for rank in range(communicator.size)} < left


def locked_path(path):
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
    return shared_files._job.staging.path / f"{name}.lock"


@takes_long()
@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_lock_that_is_not_given_back_has_a_deadline():
    with distribute.MirroredStrategy(["CPU:0"]) as strategy, pytest.MonkeyPatch.context() as patch:
        folder = world_folder(strategy.communicator)
        with strategy.scope():
            model = made()
        if strategy.is_chief:
            with locked_path(folder / "a.keras").open("w") as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                strategy.communicator.barrier()
                strategy.communicator.barrier()
        else:
            strategy.communicator.barrier()
            patch.setenv("MPISTRAT_TIMEOUT", "0.5")
            with pytest.raises(CommunicationTimeoutError, match="holds the lock"):
                model.save(folder / "a.keras")
            patch.undo()
            strategy.communicator.barrier()


# ------------------------------------------------------------------------------------- callbacks


class WithMetric(keras.Sequential):
    """A model with a metric of its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.rows = keras.metrics.Sum(name="rows")

    def train_step(self, data):
        self.rows.update_state(tf.ones_like(data[1]))
        return super().train_step(data)


@takes_long()
@pytest.mark.mpi(ranks=RANKS, timeout_s=120)
def test_all_ranks_decide_alike():
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        file = world_folder(strategy.communicator) / "best.keras"
        with strategy.scope():
            model = made(WithMetric)
        options = {"monitor": "loss", "mode": "max"}  # which is best at first
        best = keras.callbacks.ModelCheckpoint(file, save_best_only=True, **options)
        stop = keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True, **options)
        history = epochs(model, 0, 5, [best, stop]).history
        assert history["rows"] == [45.0, 45.0]
        assert best.best == history["loss"][0] == stop.best
        told = strategy.communicator.allgather_object((history, best.best, model.get_weights()))
        again = keras.models.load_model(file, {"WithMetric": WithMetric})
        for other, value, weights in told:
            assert (other, value) == (history, best.best)
            for weight, one in zip(weights, again.get_weights(), strict=True):
                assert (weight == one).all()


PROGRAM = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_saving import *

class Kill(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        # In the second epoch: a backup of the first one is there.
        if sys.argv[3] == "kill" and self.model.optimizer.iterations.numpy() == 5:
            os.kill(os.getpid(), signal.SIGKILL)

strategy = distribute.MirroredStrategy(["CPU:0"])
with strategy.scope():
    model = made()
backup = keras.callbacks.BackupAndRestore(sys.argv[2])
history = epochs(model, 0, 2, [backup, Kill()])
assert_close(model, uninterrupted())
assert history.epoch == [1], history.epoch
assert not os.path.exists(sys.argv[2])
print("went on")
"""


@takes_long()
@pytest.mark.deadline(120)
def test_a_killed_training_goes_on(tmp_path):
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    arguments = ["-c", PROGRAM, str(Path(__file__).parent), str(tmp_path / "backup")]
    killed = run_job([*arguments, "kill"], 2, 60, {"PYTHONPATH": path})
    assert killed.returncode != 0
    assert not killed.timed_out
    result = run_job([*arguments, "go on"], 2, 60, {"PYTHONPATH": path}).check()
    assert [rank.stdout for rank in result.ranks] == ["went on\n"] * 2


# --------------------------------------------------------------------------------- old checkpoints


@pytest.mark.mpi(ranks=3, timeout_s=60)
def test_managers_delete_old_checkpoints_without_a_warning():
    told = []

    class Handler(logging.Handler):
        def emit(self, record):
            told.append(record.getMessage())

    logger, handler = tf.get_logger(), Handler("WARNING")
    with distribute.MirroredStrategy(["CPU:0"]) as strategy, strategy.scope():
        folder = world_folder(strategy.communicator)
        value = tf.Variable(0.0)
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=value), folder, max_to_keep=1)
        logger.addHandler(handler)
        try:
            for number in range(20):
                value.assign(float(number))
                manager.save()
        finally:
            logger.removeHandler(handler)
        strategy.communicator.barrier()
        assert not told
        left = {file.name.partition(".")[0] for file in folder.glob("ckpt-*")}
        assert left == {"ckpt-20"}
