"""Folders that ranks save to: the program's own files and no others, at any time."""

import contextlib
import fnmatch
import os
import tempfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat  # noqa: E402 - TensorFlow may be missing
import mpistrat.tensorflow as distribute  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.testing.launcher import run_job  # noqa: E402
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

pytestmark = takes_long()

four_cpus()

X = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")

PROGRAMS = ("[0-9].keras", "[0-9].weights.h5", "m.keras", "m.weights.h5", "m.h5", "notes.txt")
CHECKPOINTS = ("checkpoint", "ckpt-[0-9].index", "ckpt-[0-9].data-00000-of-00001")
TENSORFLOWS = ("checkpoint.tmp*",)  # it writes the file `checkpoint` so in one process, too
MODEL = ("saved", "saved/*.pb", "saved/assets", "saved/variables", "saved/variables/variables.*")
ALLOWED = (*PROGRAMS, *CHECKPOINTS, *TENSORFLOWS, *MODEL)


def names_in(folder):
    walk = os.walk(folder)
    found = [f"{at}/{name}" for at, folders, files in walk for name in (*folders, *files)]
    return {os.path.relpath(path, folder) for path in found}


def foreign(names):
    return sorted(
        name for name in names if not any(fnmatch.fnmatchcase(name, one) for one in ALLOWED)
    )


@contextlib.contextmanager
def watched(folder):
    """Yield the names that are in a folder at any time of the block."""
    seen, is_over = set(), threading.Event()

    def watch():
        while not is_over.wait(1e-3):
            seen.update(names_in(folder))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join(10)
        seen.update(names_in(folder))


def made():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("adam", "mse", run_eagerly=True)
    return model


def save_in_all_ways(model, folder):
    saver = keras.callbacks.ModelCheckpoint
    whole = saver(f"{folder}/{{epoch}}.keras")
    weights = saver(f"{folder}/{{epoch}}.weights.h5", save_weights_only=True)
    model.fit(X, X[:, :1], batch_size=12, epochs=2, verbose=0, callbacks=[whole, weights])
    model.save(f"{folder}/m.keras")
    model.save(f"{folder}/m.h5")
    model.save_weights(f"{folder}/m.weights.h5")
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    checkpoint.save(f"{folder}/ckpt")
    tf.saved_model.save(model, f"{folder}/saved")
    return checkpoint


@pytest.mark.mpi(ranks=[2, 3] if with_all() else 2, timeout_s=120)
def test_all_ranks_save_and_only_the_programs_files_are_seen():
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        folder = Path(strategy.communicator.bcast_object(tempfile.mkdtemp()))
        with strategy.scope():
            model = made()
        with watched(folder) if strategy.is_chief else contextlib.nullcontext(set()) as seen:
            checkpoint = save_in_all_ways(model, folder)
            strategy.communicator.barrier()
        seen.update(names_in(folder))
        assert foreign(seen) == []
        assert {"2.keras", "2.weights.h5", "m.keras", "m.h5", "m.weights.h5"} <= seen
        assert {"ckpt-1.index", "checkpoint", "saved/variables/variables.index"} <= seen
        checkpoint.restore(f"{folder}/ckpt-1").assert_consumed()
        again = keras.models.load_model(folder / "m.keras")
        for mine, one in zip(again.get_weights(), model.get_weights(), strict=True):
            assert (mine == one).all()


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_folder_that_is_not_there_is_made_or_missed_as_in_one_process():
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        folder = Path(strategy.communicator.bcast_object(tempfile.mkdtemp()))
        with strategy.scope():
            model = made()
        with pytest.raises(FileNotFoundError, match=f"'{folder}/none/m.keras'"):
            model.save(folder / "none" / "m.keras")
        model.save(folder / "one" / "m.h5")
        tf.train.Checkpoint(model=model).write(f"{folder}/two/three/ckpt")
        tf.saved_model.save(model, f"{folder}/four/five/saved")
        strategy.communicator.barrier()
        assert sorted(os.listdir(folder)) == ["four", "one", "two"]
        assert os.listdir(folder / "one") == ["m.h5"]
        assert os.listdir(folder / "four" / "five") == ["saved"]


PROGRAM = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_saved_folders import *

folder, victim, way = Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
strategy = distribute.MirroredStrategy(["CPU:0"])

@keras.saving.register_keras_serializable()
class Deadly(keras.layers.Dense):
    is_deadly = False

    def save_own_variables(self, store):
        super().save_own_variables(store)
        if self.is_deadly and strategy.communicator.rank == victim:
            saves = Path(os.environ["XDG_CACHE_HOME"], "mpistrat", "saves")
            print("unfinished:", *{file.name for file in saves.glob("*/*/m.*")}, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), Deadly(1)])
    model.compile("sgd", "mse", run_eagerly=True)
model.save(folder / "m.keras")
model.save_weights(folder / "m.weights.h5")
strategy.communicator.barrier()
Deadly.is_deadly = True
if way == "callback":
    saver = keras.callbacks.ModelCheckpoint(folder / "m.keras")
    model.fit(X, X[:, :1], verbose=0, callbacks=[saver])
elif way == "weights":
    model.save_weights(folder / "m.weights.h5")
else:
    model.save(folder / "m.keras")
strategy.communicator.barrier()
print("not killed")
"""


@pytest.mark.deadline(120)
@pytest.mark.parametrize(
    ("ranks", "victim", "way"),
    [(2, 0, "callback"), (2, 1, "whole"), pytest.param(2, 0, "weights", marks=takes_long())],
)
def test_a_rank_that_is_killed_while_it_saves_leaves_whole_files(tmp_path, ranks, victim, way):
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    folder = tmp_path / "models"
    folder.mkdir()
    arguments = ["-c", PROGRAM, str(Path(__file__).parent), str(folder), str(victim), way]
    settings = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    settings["MPISTRAT_TF_NATIVE"] = "0"  # nothing to compile in the new cache folder
    result = run_job(arguments, ranks, 60, settings)
    assert result.returncode != 0
    assert not result.timed_out
    assert not any("not killed" in rank.stdout for rank in result.ranks)
    assert sorted(os.listdir(folder)) == ["m.keras", "m.weights.h5"], result.output
    with zipfile.ZipFile(folder / "m.keras") as whole:
        assert whole.testzip() is None
    # It was killed in the midst of a file. Whether that is still there when the job has ended
    # depends on the launcher: Open MPI gives the other rank the time to remove the folder.
    unfinished = "m.weights.h5" if way == "weights" else "m.keras"
    assert f"unfinished: {unfinished}\n" in result.ranks[victim].stdout
