"""Ranks print and log once in all: Keras's bars, tables and traces."""

import contextlib
import csv
import io
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.tf.cases import drop  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import CommunicationError, MismatchError  # noqa: E402
from mpistrat.tensorflow.keras import output  # noqa: E402
from mpistrat.testing.launcher import run_job  # noqa: E402
from mpistrat.testing.sets import repeats, takes_long, with_all  # noqa: E402

pytestmark = takes_long()

four_cpus()

X = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")

RANKS = [2, 3] if with_all() else 2
TRAINING = ("fit", "evaluate", "predict")


def made(strategy):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((4,)), *layers])
        model.compile("adam", "mse", run_eagerly=True)
    return model


def world_folder(strategy):
    return Path(strategy.communicator.bcast_object(tempfile.mkdtemp()))


def files_in(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def run(model, call, *args, **how):
    data = (X,) if call == "predict" else (X, X[:, :1])
    return getattr(model, call)(*data, *args, batch_size=12, **how)


@pytest.mark.mpi(ranks=RANKS, timeout_s=60)
@pytest.mark.parametrize("call", TRAINING)
def test_bars_are_rank_0s_unless_the_program_wants_them(call):
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        model = made(strategy)
        told = {}
        for verbose in ("default", "auto", 0, 1, 2):
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                run(model, call, **({} if verbose == "default" else {"verbose": verbose}))
            told[verbose] = bool(shown.getvalue())
        is_chief = strategy.is_chief
        assert told == {"auto": is_chief, "default": is_chief, 0: False, 1: True, 2: True}


class Params(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.verbose = self.params["verbose"]


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_callbacks_are_told_and_lists_of_ones_own_are_made():
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        model = made(strategy)
        seen = Params()
        run(model, "fit", callbacks=[seen])
        assert seen.verbose == ("auto" if strategy.is_chief else 0)
        own = keras.callbacks.CallbackList(
            [seen], False, True, model, verbose=1, epochs=1, steps=2
        )
        assert own.params["verbose"] == 1
        assert keras.callbacks.CallbackList([seen]).callbacks == [seen]


@pytest.mark.mpi(ranks=RANKS, timeout_s=60)
@pytest.mark.parametrize(
    ("who", "append"),
    [
        ("all", False),
        ("chief", True),
        pytest.param("all", True, marks=repeats()),
        pytest.param("chief", False, marks=repeats()),
    ],
)
def test_a_csv_logger_writes_each_line_once(append, who):
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        model, file = made(strategy), world_folder(strategy) / "log.csv"
        for _ in range(2):
            logger = keras.callbacks.CSVLogger(file, append=append)
            callbacks = [logger] if who == "all" or strategy.is_chief else []
            run(model, "fit", epochs=2, verbose=0, callbacks=callbacks)
            with file.open() as table:  # rank 0's is whole once fit returns, on all ranks
                rows = [row["epoch"] for row in csv.DictReader(table)]
            assert logger.filename == str(file)
            strategy.communicator.barrier()
        assert rows == (["0", "1"] * 2 if append else ["0", "1"])


class Summaries:
    """What the callback needs of tf.summary, without the package tensorboard."""

    experimental = tf.summary.experimental
    create_file_writer = staticmethod(tf.summary.create_file_writer)
    record_if = staticmethod(tf.summary.record_if)
    trace_on = staticmethod(tf.summary.trace_on)
    trace_export = staticmethod(tf.summary.trace_export)
    graph = staticmethod(tf.summary.graph)

    @staticmethod
    def scalar(name, data, step=None):
        return tf.summary.write(name, tf.convert_to_tensor(data), step=step)

    histogram = image = scalar


class OwnBoard(keras.callbacks.TensorBoard):
    """A subclass that writes on its own."""

    summary = Summaries

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        with self._train_writer.as_default(epoch):
            self.wrote = self.summary.scalar("own", 1.0)
        self._val_writer.flush()


@pytest.mark.mpi(ranks=RANKS, timeout_s=60)
@pytest.mark.parametrize("where", ["in", "out"])
def test_a_tensorboard_writes_one_file_of_each_kind(where):
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        model, folder = made(strategy), world_folder(strategy)
        how = {"write_images": True, "update_freq": "batch", "write_steps_per_second": True}
        board = OwnBoard(folder, histogram_freq=1, **how)
        fit = {"epochs": 2, "verbose": 0, "validation_data": (X, X[:, :1])}
        if where == "in":
            with strategy.scope():
                run(model, "fit", callbacks=[board], **fit)
        else:
            run(model, "fit", callbacks=[board], **fit)
        assert bool(board.wrote) == strategy.is_chief
        names = files_in(folder)
        assert [name.split("/")[0] for name in names] == ["train", "validation"]
        events = tf.compat.v1.train.summary_iterator(str(folder / names[0]))
        tags = [value.tag for event in events for value in event.summary.value]
        assert tags.count("epoch_loss") == tags.count("own") == 2


@pytest.mark.mpi(ranks=2, timeout_s=60)
def test_a_trace_is_rank_0s():
    with distribute.MirroredStrategy(["CPU:0"]) as strategy:
        model, folder = made(strategy), world_folder(strategy)
        board = OwnBoard(folder, profile_batch=1)
        run(model, "fit", verbose=0, callbacks=[board])
        traces = [name for name in files_in(folder) if name.endswith(".xplane.pb")]
        assert len(traces) == 1


class Slow(keras.callbacks.Callback):
    """Takes longer than a wait may last, on rank 0 alone."""

    def __init__(self, patch, limit, seconds):
        super().__init__()
        self.patch, self.limit, self.seconds = patch, limit, seconds

    def on_train_end(self, logs=None):
        self.patch.setenv("MPISTRAT_TIMEOUT", self.limit)
        if self.model.distribute_strategy.is_chief:
            time.sleep(self.seconds)


@pytest.mark.mpi(ranks=RANKS, timeout_s=90)
def test_the_end_of_fit_is_waited_for_longer():
    with pytest.MonkeyPatch.context() as patch, distribute.MirroredStrategy(["CPU:0"]) as strategy:
        model = made(strategy)
        run(model, "fit", verbose=0, callbacks=[Slow(patch, "0.4", 1.2)])
        patch.undo()
        assert strategy.communicator.allgather_object(1) == [1] * strategy.communicator.size


@pytest.mark.mpi(ranks=RANKS, timeout_s=90)
def test_a_callback_that_does_not_return_is_told():
    def train():
        run(model, "fit", verbose=0, callbacks=[Slow(patch, "0.05", 2.5)])
        assert strategy.is_chief  # for which what the others gave is still there
        strategy.communicator.barrier()

    strategy = distribute.MirroredStrategy(["CPU:0"])
    model = made(strategy)
    told = r"(?s)the end of fit: .*on_train_end.*(ranks that did not come: 0;|gave up)"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(CommunicationError, match=told):
        train()
    drop(strategy)


@pytest.mark.mpi(ranks=2, timeout_s=90)
def test_a_rank_that_stops_training_alone_is_told():
    class Stops(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = strategy.is_chief

    def train():
        run(model, "fit", verbose=0, epochs=3, callbacks=[Stops()])

    strategy = distribute.MirroredStrategy(["CPU:0"])
    model = made(strategy)
    with pytest.raises(MismatchError, match=r"(?s)^the ranks .*stop_training on all") as caught:
        train()
    assert not str(caught.value).rstrip().endswith("name:")  # what TensorFlow adds
    drop(strategy)


@pytest.mark.mpi(ranks=2, timeout_s=90)
def test_a_model_that_each_rank_trains_alone_is_told():
    told = []
    with pytest.MonkeyPatch.context() as patch, distribute.MirroredStrategy(["CPU:0"]) as strategy:
        patch.setattr(output, "warn_once", lambda log, key, text: told.append(text))
        run(made(strategy), "fit", verbose=0)
        assert not told
        alone = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        alone.compile("sgd", "mse")
        run(alone, "fit", verbose=0)
        assert len(told) == 1
        assert "outside of strategy.scope(): each of 2 ranks" in told[0]


NEVER_IN_SCOPE = """
import mpistrat.tensorflow as distribute
import keras, numpy as np

strategy = distribute.MirroredStrategy(["CPU:0"])
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
for _ in range(2):
    model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
"""


@pytest.mark.deadline(90)
def test_a_program_that_never_enters_the_scope_is_told_once():
    result = run_job(["-c", NEVER_IN_SCOPE], 2, 60).check()
    first, second = (rank.stderr.count("outside of strategy.scope()") for rank in result.ranks)
    assert (first, second) == (1, 0), result.output


WARNED = """
import tempfile
import mpistrat.tensorflow as distribute
import keras, numpy as np
import tensorflow as tf

def batches():
    for _ in range(3):
        yield np.ones((4, 2), "float32"), np.ones((4, 1), "float32")

strategy = distribute.MirroredStrategy(["CPU:0"])
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(batches(), steps_per_epoch=5, verbose=0)
function = tf.function(lambda number: number)
for number in range(7):
    function(number)
with tempfile.NamedTemporaryFile("w") as file:
    file.write("1\\n2\\n")
    file.flush()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    lines = tf.data.TextLineDataset(file.name).batch(2).with_options(options)
    print(len(list(strategy.experimental_distribute_dataset(lines))))
"""
OF_ALL = ("`shuffle=True` was passed", "Your input ran out", "triggered tf.function retracing")


@pytest.mark.deadline(120)
@pytest.mark.parametrize("ranks", ["0", "all"])
def test_warnings_that_all_ranks_have_come_once(ranks):
    result = run_job(["-c", WARNED], 2, 90, env={"MPISTRAT_LOG_RANKS": ranks}).check()
    for text in OF_ALL:
        seen = [text in rank.stderr for rank in result.ranks]
        assert seen == [True, ranks == "all"], result.output
    for rank in result.ranks:
        assert rank.stdout.split() == ["1"]
        assert "WARNING:absl" not in rank.stderr  # of an option that the program has not changed
