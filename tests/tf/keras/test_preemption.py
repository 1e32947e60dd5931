"""A `fit` that a signal stops goes on at the same batch, and ends with the same bits."""

import json
import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

import mpistrat.tensorflow as distribute  # noqa: E402 - TensorFlow may be missing
from helpers.preemption.fit import (  # noqa: E402
    BATCHES,
    EPOCHS,
    Options,
    Strikes,
    digest,
    fit,
)
from helpers.tf.process import four_cpus  # noqa: E402
from mpistrat.errors import UsageError  # noqa: E402
from mpistrat.tensorflow.keras.preemption.callback import _communicator  # noqa: E402
from mpistrat.tensorflow.own_strategies import WithServers  # noqa: E402
from mpistrat.testing.launcher import run_job  # noqa: E402
from mpistrat.testing.sets import repeats, takes_long  # noqa: E402

four_cpus()

on_two_ranks = pytest.mark.mpi(ranks=2, timeout_s=120)
STAYS = {"exits": False}


class Fits:
    """Fits of one kind, in one folder."""

    def __init__(self, devices=1, data="arrays"):
        self.strategy = distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)])
        self.rank, self.data = self.strategy.communicator.rank, data
        self.folder = Path(self.strategy.communicator.bcast_object(tempfile.mkdtemp()))
        self.outcome_file = self.folder / "outcome"
        self.callbacks = []

    def __enter__(self):
        os.environ["MPISTRAT_OUTCOME_FILE"] = str(self.outcome_file)
        return self

    def __exit__(self, *error):
        del os.environ["MPISTRAT_OUTCOME_FILE"]
        for callback in self.callbacks:
            # One that has stopped would end this process, which goes on.
            if callback._handler is not None:
                callback._handler.release()
        self.strategy.close()

    def whole(self):
        """Return the digest and the losses of a `fit` that nobody stops."""
        return self.run("whole")

    def run(self, name="stopped", strikes=(), **arguments):
        for callback in self.callbacks:
            if callback._handler is not None:
                callback._handler.release()
        options = Options(self.data, list(strikes), {**STAYS, **arguments})
        model, history, callback = fit(str(self.folder / name), self.strategy, options)
        self.callbacks.append(callback)
        losses = {
            epoch: [values[i] for values in history.history.values()]
            for i, epoch in enumerate(history.epoch)
        }
        return digest(model), losses, callback.has_stopped

    def outcome(self):
        self.strategy.communicator.barrier()
        return self.outcome_file.read_text().strip()


def check_same(whole, rest):
    """Check the digest, and the losses of the epochs that were run again or gone on with."""
    digest_of_whole, losses, _ = whole
    assert rest[0] == digest_of_whole
    assert not rest[2]
    for epoch, values in rest[1].items():
        assert values == losses[epoch], epoch


KINDS = [
    "arrays",
    "tf.data",
    pytest.param("steps", marks=takes_long()),
    pytest.param("PyDataset", marks=takes_long()),
    pytest.param("unknown length", marks=takes_long()),
]


@takes_long()
@on_two_ranks
@pytest.mark.parametrize("data", KINDS)
def test_data_of_each_kind_go_on_at_the_batch_where_they_were(data):
    with Fits(data=data) as fits:
        whole = fits.whole()
        stopped = fits.run(strikes=[(1, 1, 1, "SIGUSR1")])
        assert stopped[2]
        assert fits.outcome() == "REQUEUE"
        assert max(stopped[1]) == 1  # the epoch of the signal, which ends early
        rest = fits.run()
        assert sorted(rest[1]) == [1, 2]
        check_same(whole, rest)
        assert fits.outcome() == "DONE"


@takes_long()
@on_two_ranks
def test_many_stops_in_training_and_validation():
    """At the first batch and the last, in the validation, and twice in one epoch."""
    with Fits() as fits:
        whole = fits.whole()
        last = BATCHES - 1
        for strike in [(0, 0, 0), (0, last - 1, 1), (1, -2, 1), (2, 0, 0), (2, last, 1)]:
            assert fits.run(strikes=[(*strike, "SIGUSR1")])[2], strike
        rest = fits.run()
        assert sorted(rest[1]) == [EPOCHS - 1]
        check_same(whole, rest)
        saved = sorted(path.name for path in (fits.folder / "stopped").glob("ckpt-*"))
        assert saved == ["ckpt-5", "ckpt-6"]  # the last two: of the last stop, and of the end


@on_two_ranks
@repeats()
def test_several_replicas_of_a_rank():
    with Fits(devices=2) as fits:
        whole = fits.whole()
        assert fits.run(strikes=[(1, 1, 1, "SIGUSR1")])[2]
        check_same(whole, fits.run())


@takes_long()
@on_two_ranks
def test_a_fit_that_is_done_trains_no_more():
    with Fits() as fits:
        whole = fits.run(strikes=[])
        again = fits.run(strikes=[(0, 0, 0, "SIGUSR1")])
        assert (again[0], again[1]) == (whole[0], {})


@takes_long()
@on_two_ranks
def test_periodic_saves():
    with Fits() as fits:
        fits.run(save_every_s=0.001, max_to_keep=None)
        saved = len(list((fits.folder / "stopped").glob("ckpt-*")))
        assert saved > 3  # besides that of the end


@takes_long()
def test_a_fit_without_a_strategy(tmp_path):
    """One process, as every program begins."""

    class Strike(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 1:
                os.kill(os.getpid(), signal.SIGTERM)

    def weights(name, *others):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("adam", "mse")
        callback = distribute.PreemptionCallback(tmp_path / name, exits=False)
        model.fit(x, x[:, :2], 4, epochs=2, verbose=0, callbacks=[*others, callback])
        stops.append(callback.has_stopped)
        if callback.has_stopped:
            callback._handler.release()
        return model.get_weights()

    stops = []
    x = np.random.default_rng(0).normal(size=(20, 3))
    whole = weights("whole")
    weights("stopped", Strike())
    rest = weights("stopped")
    assert stops == [False, True, False]
    for one, other in zip(whole, rest, strict=True):
        np.testing.assert_array_equal(one, other)


@takes_long()
def test_after_an_error_of_the_program_another_fit_can_begin(tmp_path):
    class Fails(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            raise ValueError("the program's own")

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    x = np.zeros((8, 3))
    callback = distribute.PreemptionCallback(tmp_path)
    with pytest.raises(ValueError, match="the program's own"):
        model.fit(x, x[:, :2], verbose=0, callbacks=[Fails(), callback])
    history = model.fit(x, x[:, :2], verbose=0, callbacks=[callback])
    assert history.epoch == [0]
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


@takes_long()
def test_an_epoch_argument_that_grows_trains_on(tmp_path):
    x = np.random.default_rng(0).normal(size=(8, 3))
    for epochs, trained in ((2, [0, 1]), (2, []), (5, [2, 3, 4])):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("adam", "mse")
        callback = distribute.PreemptionCallback(tmp_path)
        history = model.fit(x, x[:, :2], epochs=epochs, verbose=0, callbacks=[callback])
        assert history.epoch == trained


@takes_long()
def test_without_a_seed_it_says_that_rows_may_come_in_another_order(tmp_path, caplog):
    def run(strikes=()):
        tf.random.set_seed(None)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("adam", "mse")
        callback = distribute.PreemptionCallback(tmp_path, exits=False)
        model.fit(x, x[:, :2], 2, verbose=0, callbacks=[Strikes(list(strikes), 0), callback])
        if callback.has_stopped:
            callback._handler.release()

    x = np.zeros((8, 3))
    run([(0, 0, 0, "SIGUSR1")])
    assert "global seed" not in caplog.text
    run()
    assert "global seed was not set and is not set" in caplog.text
    assert "keras.utils.set_random_seed(n)" in caplog.text


def test_parameter_servers_are_refused():
    class Strategy(WithServers):
        """A kind of strategy, of which making one takes a job of several ranks."""

    with pytest.raises(UsageError, match="with a Strategy; expected a strategy of"):
        _communicator(Strategy())


@takes_long()
@pytest.mark.deadline(300)
def test_a_program_that_is_started_again(tmp_path):
    """The whole way, in new processes: stopped with status 0, and gone on with."""
    environment = {"MPISTRAT_OUTCOME_FILE": str(tmp_path / "outcome")}

    def run(folder, options="{}"):
        arguments = ["-m", "helpers.preemption.fit", str(tmp_path / folder), options]
        job = run_job(arguments, 2, 120, environment).check()
        return [rank.stdout.splitlines() for rank in job.ranks]

    whole = run("whole")
    assert run("stopped", '{"strikes": [[1, 1, 1, "SIGUSR1"]]}') == [[], []]
    assert (tmp_path / "outcome").read_text() == "REQUEUE\n"
    rest = run("stopped")
    assert (tmp_path / "outcome").read_text() == "DONE\n"
    for one, other in zip(whole, rest, strict=True):
        assert other[0] == one[0].replace("[0, 1, 2]", "[1, 2]")  # the digest
        assert other[1:] == one[2:]  # the losses


@takes_long()
@pytest.mark.deadline(200)
def test_a_rank_that_never_comes_is_found_while_tensorflow_waits_for_it(tmp_path):
    """Rank 0 is in a graph then, where no handler of Python's runs."""
    options = {
        "strikes": [(1, 1, 1, "sleep"), (1, 1, 0, "late SIGUSR1")],
        "callback": {"lead_s": 4, "save_every_steps": 1},
    }
    arguments = ["-m", "helpers.preemption.fit", str(tmp_path / "ckpt"), json.dumps(options)]
    environment = {"MPISTRAT_OUTCOME_FILE": str(tmp_path / "outcome")}
    job = run_job(arguments, 2, 120, environment)
    assert (job.returncode, job.timed_out) == (os.EX_TEMPFAIL, False), job.output
    assert "rank 0/2 has not stopped in time" in job.output
    assert (tmp_path / "outcome").read_text() == "REQUEUE\n"
