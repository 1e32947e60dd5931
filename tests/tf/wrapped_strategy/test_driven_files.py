"""Files where one rank drives TensorFlow's strategy: it writes them, and the others wait."""

import contextlib
import contextvars
import tempfile
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

from helpers.tf.cases import drop, mirrored_cpus  # noqa: E402
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import (  # noqa: E402
    ClosedError,
    CommunicationError,
    MismatchError,
    PeerLostError,
    UsageError,
)
from mpistrat.tensorflow import TFBackedStrategy  # noqa: E402 - TensorFlow may be missing
from mpistrat.testing.sets import takes_long, with_all  # noqa: E402

four_cpus()

RANKS = pytest.mark.mpi(ranks=[2, 3] if with_all() else [2], timeout_s=60)
SOME = pytest.mark.mpi(ranks=2, timeout_s=60)
X = np.random.default_rng(0).normal(size=(24, 4))
Y = X.sum(1, keepdims=True)


def trained(s, **how):
    keras.utils.set_random_seed(1)
    with s.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.1), "mse")
    model.fit(X, Y, batch_size=12, epochs=2, verbose=0, **how)
    return model


@contextlib.contextmanager
def driven(driver):
    """Yield a strategy, a folder of all ranks, and this rank's own."""
    from mpi4py import MPI

    with tempfile.TemporaryDirectory() as own:
        with TFBackedStrategy(mirrored_cpus, driver=driver) as s:
            shared = s.communicator.bcast_object(own, root=driver)
            yield s, Path(shared), Path(own)
        MPI.COMM_WORLD.barrier()


def who_wrote(s, own):
    """Return whether there is a file in each rank's own folder."""
    return s.communicator.allgather_object(any(own.iterdir()))


@takes_long()
@RANKS
def test_the_driving_rank_saves_a_keras_model_for_all():
    with driven(1) as (s, shared, own):
        model = trained(s, callbacks=[keras.callbacks.ModelCheckpoint(own / "best.keras")])
        names = ["model.keras", "model.weights.h5", "again.keras"]
        writers = [model.save, model.save_weights, partial(keras.saving.save_model, model)]
        for name, write in zip(names, writers, strict=True):
            write(shared / name)
            assert (shared / name).exists()
            write(own / name)
        model.export(own / "exported", verbose=False)
        assert who_wrote(s, own) == [r == 1 for r in range(s.communicator.size)]
        again = keras.saving.load_model(shared / "model.keras")
        values = [v.numpy().tolist() for v in (*model.weights, *model.optimizer.variables)]
        assert int(model.optimizer.iterations.numpy()) == 4
        assert [v.numpy().tolist() for v in (*again.weights, *again.optimizer.variables)] == values
        assert s.communicator.allgather_object(values) == [values] * s.communicator.size
        with pytest.raises(ValueError, match="filename must end in") as caught:
            model.save_weights(shared / "x.wrong")
        assert s.is_driver or "rank 1, which drives, raised this" in str(caught.value.__cause__)


@RANKS
def test_the_driving_rank_writes_checkpoints_for_all():
    with driven(1) as (s, shared, own):
        with s.scope():
            variable = tf.Variable(1.0 + s.communicator.rank)
        checkpoint = tf.train.Checkpoint(variable=variable)
        called = []
        options = tf.train.CheckpointOptions(experimental_write_callbacks=[called.append])
        assert checkpoint.write(own / "one") == str(shared / "one")  # where it is
        assert checkpoint.save(own / "two", options).endswith("two-1")
        assert len(called) == s.is_driver
        assert int(checkpoint.save_counter) == 1
        tf.saved_model.save(checkpoint, str(own / "saved"))
        assert who_wrote(s, own) == [r == 1 for r in range(s.communicator.size)]
        manager = tf.train.CheckpointManager(checkpoint, str(shared / "managed"), 2)
        for step in range(2, 5):
            path = manager.save()
            assert path == manager.latest_checkpoint == str(shared / "managed" / f"ckpt-{step}")
            assert tf.train.latest_checkpoint(manager.directory) == path
        assert [int(one[-1]) for one in manager.checkpoints] == [3, 4]
        kept = {file.name for file in (shared / "managed").iterdir() if file.name[0] != "."}
        assert kept == {"checkpoint"} | {
            f"ckpt-{i}.{end}" for i in (3, 4) for end in ("index", "data-00000-of-00001")
        }
        checkpoint.restore(path).assert_consumed()
        assert s.on_driver(lambda: float(variable.numpy())) == 2.0
        assert s.is_driver or float(variable.numpy()) == 2.0
        with pytest.raises((OSError, tf.errors.OpError)) as caught:
            checkpoint.write(shared / "managed" / "checkpoint" / "no folder")
        kinds = s.communicator.allgather_object(type(caught.value).__name__)
        assert kinds == kinds[:1] * s.communicator.size
        asynchronous = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
        with pytest.raises(UsageError, match="leave this option out"):
            checkpoint.save(own / "later", asynchronous)


@SOME
def test_the_driving_rank_may_save_alone():
    with driven(0) as (s, _, own):
        with s.scope():
            checkpoint = tf.train.Checkpoint(variable=tf.Variable(1.0))
        assert s.on_driver(checkpoint.save, own / "one").endswith("one-1")
        assert s.reduce("SUM", s.run(lambda: tf.constant(1.0)), axis=None) == 2.0
        plain = tf.train.Checkpoint(variable=tf.Variable(1.0))
        plain.write(own / "plain")
        assert who_wrote(s, own) == [True, True]  # an object that is each rank's own
        s.on_driver(checkpoint.save, own / "two")
        s.close()
        checkpoint.write(own / "closed")
        assert (own / "closed.index").exists() == s.is_driver


@SOME
def test_saves_of_the_driving_rank_between_those_of_all():
    with driven(0) as (s, shared, own):
        with s.scope():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        s.on_driver(model.save, shared / "best.keras")
        model.save(shared / "last.keras")
        assert (shared / "best.keras").exists()
        assert keras.saving.load_model(shared / "last.keras").count_params() == 5
        with pytest.raises((OSError, tf.errors.OpError)):
            s.on_driver(model.save_weights, shared / "no folder" / "model.weights.h5")
        model.save_weights(own / "model.weights.h5")
        checkpoint = tf.train.Checkpoint(model=model)
        managers = [tf.train.CheckpointManager(checkpoint, shared / one, 3) for one in "ab"]
        for manager in managers:
            s.on_driver(managers[0].save)  # the others' checkpoint does not count it
            path = manager.save()
            assert s.communicator.allgather_object(path) == [path] * 2
            assert path == manager.latest_checkpoint
            checkpoint.restore(path).assert_consumed()
        assert path == str(shared / "b" / "ckpt-4")
        assert int(checkpoint.save_counter) == 4
        assert who_wrote(s, own) == [True, False]


@SOME
def test_saves_of_all_ranks_that_differ():
    s = TFBackedStrategy(mirrored_cpus, driver=0)
    with s.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    with tempfile.TemporaryDirectory() as own:
        text = r"one file name; .*saving a model, .*1.keras, at .*called saving a .*0.keras, at"

        def run():
            model.save(f"{own}/{s.communicator.rank}.keras")
            s.on_driver(lambda: 1)
            s.communicator.barrier()

        with pytest.raises((UsageError, PeerLostError), match=text):
            run()
    drop(s)


@SOME
def test_a_save_where_the_others_are_in_another_call():
    s = TFBackedStrategy(mirrored_cpus, driver=0)
    with s.scope():
        checkpoint = tf.train.Checkpoint(variable=tf.Variable(1.0))
    text = r"strategy.on_driver.*waits in reduce, but rank 0.* called saving a checkpoint, .*one"

    def run(own):
        if s.is_chief:
            checkpoint.write(f"{own}/one")
        s.reduce("SUM", s.run(lambda: tf.constant(1.0)), axis=None)
        s.communicator.barrier()

    error = pytest.raises((UsageError, PeerLostError), match=text)
    with tempfile.TemporaryDirectory() as own, error:
        run(own)
    drop(s)


@SOME
def test_a_save_where_the_others_are_in_a_collective_of_the_communicator():
    s = TFBackedStrategy(mirrored_cpus, driver=0)
    with s.scope():
        checkpoint = tf.train.Checkpoint(variable=tf.Variable(1.0))
    text = r"tells of saving a checkpoint, .*one, at (.|\n)*a save is a call of all ranks"
    with tempfile.TemporaryDirectory() as own, pytest.raises(MismatchError, match=text):
        checkpoint.write(f"{own}/one") if s.is_chief else s.communicator.barrier()
    drop(s)


@SOME
@pytest.mark.parametrize("is_closed", [True, False])
def test_nothing_is_trained_for_nobody(is_closed):
    s = TFBackedStrategy(mirrored_cpus, driver=0)
    with s.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    if is_closed:
        s.close()
    else:
        s.communicator.health.break_off(OSError("a cable"))
    epochs = []
    seen = keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: epochs.append(1))
    error = ClosedError if is_closed else CommunicationError
    with pytest.raises(error, match="was closed" if is_closed else "a cable"):
        model.fit(X, Y, verbose=0, callbacks=[seen])
    assert not epochs
    with tempfile.TemporaryDirectory() as own:
        if s.is_driver:  # saves what it has
            model.save(f"{own}/rescued.keras")
            assert Path(own, "rescued.keras").exists()
    drop(s)


@SOME
def test_a_save_in_a_thread_is_alone_there_only():
    with driven(0) as (s, _, own):
        with s.scope():
            checkpoint = tf.train.Checkpoint(variable=tf.Variable(1.0))
        began, may_end = threading.Event(), threading.Event()

        def wait(_):
            began.set()
            may_end.wait(30)

        options = tf.train.CheckpointOptions(experimental_write_callbacks=[wait])
        threads = []

        def start():  # a thread that is told whom it works for
            call = contextvars.copy_context().run, (checkpoint.write, own / "one", options)
            threads.append(threading.Thread(target=call[0], args=call[1]))
            threads[0].start()
            began.wait(30)

        s.on_driver(start)
        assert s.reduce("SUM", s.run(lambda: tf.constant(1.0)), axis=None) == 2.0
        may_end.set()
        if s.is_chief:
            threads[0].join()
        s.close()
        assert (own / "one.index").exists() == s.is_driver


@SOME
def test_threads_of_tensorflow_are_alone_with_the_one_that_they_work_for():
    with driven(0) as (s, _, _own):
        link, seen = s._wrapped.link, []
        note = lambda x: (seen.append(link.is_alone), x)[1]  # noqa: E731
        rows = tf.data.Dataset.range(4).batch(2)
        rows = rows.map(lambda x: tf.numpy_function(note, [x], tf.int64))
        s.on_driver(lambda: s.run(lambda: note(tf.constant(1.0))) and None)
        assert len(seen) == (2 if s.is_driver else 0)
        s.on_driver(lambda: [one.numpy().tolist() for one in rows])
        assert seen == ([True] * 4 if s.is_driver else [])
        s.run(lambda: note(tf.constant(1.0)))
        assert seen[4:] == ([False] * 2 if s.is_driver else [])


@SOME
def test_ranks_that_make_other_calls():
    s = TFBackedStrategy(mirrored_cpus, driver=0)
    if s.is_driver:
        s.on_driver(lambda: 1)
        with pytest.raises(PeerLostError, match="all ranks have to make the same calls"):
            s.communicator.barrier()
    else:
        with pytest.raises(UsageError, match=r"rank 1 waits in reduce, but rank 0.*called on_dri"):
            s.reduce("SUM", s.run(lambda: 1.0), axis=None)
    drop(s)
