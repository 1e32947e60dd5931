"""The parts of the case ``io``: a folder that is gone in the end, and bits that are compared."""

import os
import signal
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

import mpistrat
from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError

pytest.importorskip("typer")

from mpistrat.bench.checkpoint_io import folder as folder_module
from mpistrat.bench.checkpoint_io.folder import shared_folder
from mpistrat.bench.checkpoint_io.measurement import OURS, PLAIN, Measurement
from mpistrat.bench.checkpoint_io.report import records
from mpistrat.bench.checkpoint_io.saved_variables import LEAST_BYTES, SavedVariables
from mpistrat.bench.harness.timing import Timing


@pytest.fixture
def communicator():
    with Communicator() as one:
        yield one


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_the_folder_is_gone_after_an_error(tmp_path, communicator, error):
    def write():
        with shared_folder(tmp_path, 1, communicator) as path:
            assert path.parent == tmp_path
            (path / "inner").mkdir()
            (path / "inner" / "file").write_text("text")
            raise error

    with pytest.raises(error):
        write()
    assert not list(tmp_path.iterdir())


def test_the_folder_is_gone_after_the_signal_of_a_batch_system(tmp_path, communicator):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), shared_folder(tmp_path, 1, communicator):
        os.kill(os.getpid(), signal.SIGTERM)
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_folder_that_stays_is_named(tmp_path, communicator, monkeypatch, capsys):
    monkeypatch.setattr(folder_module, "_DELETING_S", 0.05)
    fails = patch("shutil.rmtree", side_effect=OSError("busy"))
    with fails, shared_folder(tmp_path, 1, communicator) as path:
        pass
    assert f"{path} stays: busy; delete it" in capsys.readouterr().err


def test_too_little_space_is_refused(tmp_path, communicator):
    message = r"0\.00 GB free, and 2\.00 GB are needed"
    full = patch("shutil.disk_usage", return_value=SimpleNamespace(free=10**6))
    with full, pytest.raises(UsageError, match=message):
        shared_folder(tmp_path, 2 * 10**9, communicator).__enter__()
    assert not list(tmp_path.iterdir())


def test_several_machines_need_a_shared_folder():
    reason = folder_module._make(None, 1, 2)[1]
    assert "the job has 2 machines" in reason
    assert "--folder PATH" in reason


@pytest.fixture
def variables():
    with mpistrat.MirroredStrategy() as strategy:
        yield SavedVariables(strategy, 1000)


def test_bits_are_compared(variables, tmp_path):
    assert variables.nbytes == 1000 // LEAST_BYTES * LEAST_BYTES
    assert variables.are_right()
    variables.save(tmp_path / "checkpoint")
    variables.forget()
    assert not variables.are_right()
    variables.restore(tmp_path / "checkpoint")
    assert variables.are_right()
    last = variables._variables[-1]
    last.assign(np.where(np.arange(last.shape[0]) == 5, 0.5, last.numpy()))
    assert not variables.are_right()


def test_each_round_writes_anew_and_leaves_nothing(variables, tmp_path, communicator):
    measurement = Measurement(variables, tmp_path, communicator)
    assert measurement.why_wrong() is None
    times = measurement.times(rounds=9, seconds=0.0)
    assert list(times) == [(side, op) for op in ("save", "restore") for side in (OURS, PLAIN)]
    assert all(len(one.rounds_us) == 3 and one.min_us > 0 for one in times.values())
    assert not list(tmp_path.iterdir())


def test_what_is_not_restored_is_found(variables, tmp_path, communicator):
    with patch.object(np, "load", return_value=np.zeros(3)):
        said = Measurement(variables, tmp_path, communicator).why_wrong()
    assert said == f"{PLAIN}: what rank 0 restored is not what was saved"
    with patch.object(SavedVariables, "restore"):
        said = Measurement(variables, tmp_path, communicator).why_wrong()
    assert said == "checkpoint: what rank 0 restored is not what was saved"


def test_each_side_is_named_by_what_it_does(communicator):
    keys = [(side, op) for op in ("save", "restore") for side in (OURS, PLAIN)]
    found = records({key: Timing((1.0,)) for key in keys}, 8, communicator)
    assert [one["side"] for one in found] == ["mpistrat", PLAIN, "mpistrat", "np.load by rank 0"]


def test_bandwidths_are_those_of_the_median(communicator):
    times = {(OURS, "save"): Timing((1.0, 4.0, 2.0)), (PLAIN, "save"): Timing((2.0, 2.0, 2.0))}
    ours, plain = records(times, 8000, communicator)
    assert (ours["GBps"], plain["GBps"]) == (4, 4)
    assert (ours["speedup"], plain["speedup"]) == ({"bound": 1.0}, {})
    assert [one["kind"] for one in (ours, plain)] == ["backend", "bound"]
    assert ours["time_us"] == {"min": 1, "median": 2, "p99": 3.96, "max": 4}
