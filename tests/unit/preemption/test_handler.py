"""`PreemptionHandler` in one process: saves, stops, refusals."""

import os
import re
import signal
import threading
import time

import pytest

from mpistrat import Preempted, PreemptionHandler
from mpistrat.errors import (
    ArgumentTypeError,
    CheckpointError,
    ClosedError,
    ContextError,
    UsageError,
)
from mpistrat.preemption.handler import PreemptionHandler as Handler
from mpistrat.train import Checkpoint, CheckpointManager


def strike(number=signal.SIGUSR1):
    os.kill(os.getpid(), number)


def train(handler, state, steps, at=None):
    for _ in range(state.step, steps):
        state.step += 1
        if state.step == at:
            strike()
        handler.end_step()


def test_a_program_that_ends_is_done(manager, outcome):
    with PreemptionHandler(manager) as handler:
        train(handler, manager.checkpoint, 5)
        assert outcome() is None
        assert not handler.poll()
    assert outcome() == "DONE"
    assert manager.checkpoints == []
    assert not handler.has_stopped
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_a_signal_saves_and_ends_the_program(manager, outcome, caplog):
    with pytest.raises(Preempted) as caught, PreemptionHandler(manager) as handler:
        train(handler, manager.checkpoint, 1000, at=5)
    assert isinstance(caught.value, SystemExit)
    assert caught.value.code == 0
    assert caught.value.saved == manager.latest_checkpoint
    assert caught.value.step == manager.checkpoint.step < 1000
    assert outcome() == "REQUEUE"
    assert handler.has_stopped
    assert "SIGUSR1 came to rank 0; all ranks stop after step" in caplog.text
    again = CheckpointManager(Checkpoint(step=0), manager.directory, 2)
    again.restore_or_initialize()
    assert again.checkpoint.step == manager.checkpoint.step


def test_a_second_signal_does_not_end_it_before_it_has_come_to_its_end(manager):
    with pytest.raises(Preempted), PreemptionHandler(manager) as handler:
        train(handler, manager.checkpoint, 1000, at=5)
    strike(signal.SIGTERM)
    strike(signal.SIGUSR1)
    with pytest.raises(Preempted):
        handler.end_step()


def test_a_program_may_leave_its_loop_by_itself(manager, outcome):
    with PreemptionHandler(manager, exits=False) as handler:
        strike()
        while not handler.end_step():
            manager.checkpoint.step += 1
        assert handler.end_step()
        assert handler.check()
    assert outcome() == "REQUEUE"


def test_a_long_phase_is_left_by_check(manager, outcome):
    def evaluate(handler):
        assert not handler.check()
        strike(signal.SIGTERM)
        assert handler.poll()
        handler.check()

    with pytest.raises(Preempted) as caught, PreemptionHandler(manager) as handler:
        evaluate(handler)
    assert caught.value.saved is None  # no step was made: there is nothing to save
    assert outcome() == "REQUEUE"


def test_a_signal_without_a_name(manager, caplog):
    number = signal.SIGRTMIN + 1
    with pytest.raises(Preempted), PreemptionHandler(manager, signals=(number,)) as handler:
        strike_and_train(handler, manager.checkpoint, number)
    assert f"signal {number} came to rank 0" in caplog.text


def strike_and_train(handler, state, number):
    strike(number)
    train(handler, state, 1000)


def test_in_another_thread_it_is_refused(manager):
    errors = []

    def work():
        try:
            PreemptionHandler(manager)
        except ContextError as error:
            errors.append(str(error))

    thread = threading.Thread(target=work, name="trainer")
    thread.start()
    thread.join()
    assert "PreemptionHandler in the thread 'trainer': Python handles signals in" in errors[0]


def test_a_request_to_stop_from_a_thread(manager, caplog):
    def run(handler):
        thread = threading.Thread(target=handler.request_stop)
        thread.start()
        thread.join()
        train(handler, manager.checkpoint, 1000)

    with pytest.raises(Preempted), PreemptionHandler(manager, signals=()) as handler:
        run(handler)
    assert "a request to stop came to rank 0" in caplog.text


def test_periodic_saves_by_steps(manager):
    with PreemptionHandler(manager, save_every_steps=5) as handler:
        for _ in range(25):
            time.sleep(0.03)  # so that each step has a round
            train(handler, manager.checkpoint, manager.checkpoint.step + 1)
    assert [os.path.basename(one) for one in manager.checkpoints] == ["ckpt-3", "ckpt-4"]


def test_periodic_saves_by_time(manager):
    with PreemptionHandler(manager, save_every_s=0.2) as handler:
        train(handler, manager.checkpoint, 3)
        assert manager.checkpoints == []
        time.sleep(0.25)
        train(handler, manager.checkpoint, 300)
    assert len(manager.checkpoints) == 1


def test_a_save_that_would_end_too_late_is_not_begun(manager, outcome, caplog):
    class Slow(CheckpointManager):
        def save(self, *args, **kwargs):
            time.sleep(1)
            return super().save(*args, **kwargs)

    def run(handler, steps):
        if not slow.checkpoints:
            handler.save()
        handler.request_stop()
        train(handler, slow.checkpoint, steps)

    slow = Slow(manager.checkpoint, manager.directory, max_to_keep=2)
    with pytest.raises(Preempted) as caught, Handler(slow, signals=(), lead_s=2) as handler:
        run(handler, 1000)
    first = caught.value.saved
    assert slow.checkpoints == [first]
    assert outcome() == "REQUEUE"
    late = r"a save takes about \d+\.\d s, and [01]\.\d s are left: not begun"
    assert re.search(late, caplog.text)
    assert f"the checkpoint that counts is {first}" in caplog.text
    # The time of a save is known in the next run, too.
    with pytest.raises(Preempted), Handler(slow, signals=(), lead_s=2) as handler:
        run(handler, 2000)
    assert slow.checkpoints == [first]


def test_a_last_save_that_fails_leaves_the_one_before(manager, outcome, caplog):
    def fail(*args, **kwargs):
        raise CheckpointError("the disk is full")

    def run(handler):
        handler.save()
        manager.save = fail
        train(handler, manager.checkpoint, 1000, at=5)

    with pytest.raises(Preempted) as caught, PreemptionHandler(manager) as handler:
        run(handler)
    (good,) = manager.checkpoints
    assert caught.value.saved == good
    assert f"the disk is full; the checkpoint that counts is {good}" in caplog.text
    assert outcome() == "REQUEUE"


def test_a_periodic_save_that_fails_is_an_error(manager, outcome):
    def fail(*args, **kwargs):
        raise CheckpointError("the disk is full")

    manager.save = fail
    with (
        pytest.raises(CheckpointError, match="the disk is full"),
        PreemptionHandler(manager, save_every_steps=1) as handler,
    ):
        train(handler, manager.checkpoint, 1000)
    assert outcome() is None


def test_a_signal_just_before_the_end_is_no_stop(manager, outcome):
    with PreemptionHandler(manager) as handler:
        train(handler, manager.checkpoint, 5, at=5)
    assert outcome() == "DONE"


def test_an_error_of_the_program_leaves_no_word(manager, outcome):
    def run(handler):
        handler.end_step()
        _ = 1 / 0

    with pytest.raises(ZeroDivisionError), PreemptionHandler(manager) as handler:
        run(handler)
    assert outcome() is None
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    with pytest.raises(ClosedError, match="make a new one on all ranks"):
        handler.end_step()


def test_close_is_idempotent(manager, outcome):
    handler = PreemptionHandler(manager)
    handler.close()
    handler.close()
    assert outcome() == "DONE"
    with pytest.raises(ClosedError):
        handler.check()


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"save_every_steps": 0}, UsageError, "save_every_steps=0: expected a number above 0"),
        ({"save_every_s": "1"}, UsageError, "save_every_s='1': expected a number above 0"),
        ({"lead_s": -1}, UsageError, "lead_s=-1: expected seconds above 0"),
        ({"signals": (signal.SIGKILL,)}, UsageError, "9 cannot be handled"),
    ],
)
def test_wrong_arguments(manager, arguments, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        PreemptionHandler(manager, **arguments)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_what_cannot_save():
    with pytest.raises(
        ArgumentTypeError, match=r"of a dict; expected a mpistrat.train.Checkpoint"
    ):
        PreemptionHandler({})


def test_an_outcome_file_that_cannot_be_written(manager, monkeypatch, tmp_path):
    monkeypatch.setenv("MPISTRAT_OUTCOME_FILE", str(tmp_path / "no" / "outcome"))
    with pytest.raises(UsageError, match=r"MPISTRAT_OUTCOME_FILE='.*/no/outcome'"):
        PreemptionHandler(manager)


def test_one_that_is_gone_at_the_end_is_told_and_no_error(manager, monkeypatch, tmp_path, caplog):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.setenv("MPISTRAT_OUTCOME_FILE", str(folder / "outcome"))

    def run(handler):
        folder.rmdir()
        train(handler, manager.checkpoint, 1000, at=5)

    with pytest.raises(Preempted), PreemptionHandler(manager) as handler:
        run(handler)
    assert "REQUEUE could not be written to" in caplog.text
    assert manager.latest_checkpoint is not None


def test_a_rank_that_only_serves_is_not_ended(outcome):
    with PreemptionHandler(None) as handler:
        strike(signal.SIGTERM)
        assert handler.poll()
    assert outcome() is None


def test_the_notice_of_a_cloud(manager, caplog):
    """It comes in a thread, and perhaps when all is over."""
    with pytest.raises(Preempted), PreemptionHandler(manager) as handler:
        request_and_train(handler, manager.checkpoint)
    assert "asked to stop: instance/preempted" in caplog.text
    handler.release()
    handler.request_stop()
    assert handler.has_stopped


def request_and_train(handler, state):
    handler.request_stop("instance/preempted")
    train(handler, state, 1000)
