"""A crash or an error at any step of a save leaves the last good checkpoint, an error no files.

Steps are the calls that change the disk. A child process is killed at each, before and after
it, and with half of the bytes written.
"""

import os
import signal
import traceback
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from mpistrat import Variable
from mpistrat.errors import CheckpointError
from mpistrat.testing.sets import repeats
from mpistrat.train import Checkpoint, CheckpointManager, latest_checkpoint

CALLS = ["fsync", "replace", "mkdir", "unlink", "rmdir"]


class Steps:
    """Counts the calls that change the disk, and does something at one of them."""

    def __init__(self, patch, at, before, after):
        self.number, self.at, self.before, self.after = 0, at, before, after
        for name in CALLS:
            patch.setattr(os, name, self.wrapped(getattr(os, name)))
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: self.unlink(path, missing_ok))
        patch.setattr(safetensors.numpy, "save_file", self.wrapped(safetensors.numpy.save_file))

    def unlink(self, path, missing_ok):
        try:
            os.unlink(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def wrapped(self, call):
        def step(*args, **kwargs):
            self.number += 1
            is_it = self.number == self.at
            if is_it and self.before is not None:
                self.before(call, args)
            call(*args, **kwargs)
            if is_it and self.after is not None:
                self.after()

        return step


def kill(*ignored):
    os.kill(os.getpid(), signal.SIGKILL)


def write_half(call, args):
    """Be killed when half of a file's bytes are there."""
    call(*args)
    if call.__name__ == "save_file":
        os.truncate(args[1], os.path.getsize(args[1]) // 2)
    kill()


def fail(*ignored):
    raise OSError(28, "No space left on device")


def value(number):
    return np.full((40, 5), float(number))


def make(folder, number):
    """Return a manager whose checkpoint says which save it is."""
    checkpoint = Checkpoint(v=Variable(value(number)), number=number)
    return checkpoint, CheckpointManager(checkpoint, folder, max_to_keep=2)


def save(folder, number):
    checkpoint, manager = make(folder, 0)
    manager.restore_or_initialize()
    checkpoint.v.assign(value(number))
    checkpoint.number = number
    manager.save()


def restored(folder):
    """Return the number of the latest checkpoint; all that are listed must be whole."""
    checkpoint, manager = make(folder, -1)
    assert latest_checkpoint(folder) == manager.latest_checkpoint
    for path in manager.checkpoints:
        checkpoint.restore(path).assert_consumed()
        assert (checkpoint.v.numpy() == checkpoint.number).all()
    return checkpoint.number


def killed(act, at, before, after):
    """Do something in a child that is killed at a step; return whether it came so far."""
    child = os.fork()
    if child == 0:
        try:
            Steps(pytest.MonkeyPatch(), at, before, after)
            act()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the parent sees that the child failed
            traceback.print_exc()
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(kill, None, id="before", marks=repeats()),
        pytest.param(None, kill, id="after", marks=repeats()),
        pytest.param(write_half, None, id="half"),
    ],
)
def test_a_kill_at_any_step_leaves_a_whole_checkpoint(tmp_path, before, after):
    good, seen = 0, set()
    for number in (1, 2, 3):
        save(tmp_path, number)
        good = number
    for step in range(1, 1000):
        number = 10 + step
        was_killed = killed(lambda n=number: save(tmp_path, n), step, before, after)
        found = restored(tmp_path)
        assert found in (good, number)
        seen.add(found == number)
        good = found
        if not was_killed:
            break
    assert good == number  # the last one ran to its end
    assert step > 12
    assert seen == {True, False}
    for number in (2001, 2002, 2003):  # and what crashes left goes with the old ones
        save(tmp_path, number)
    assert restored(tmp_path) == 2003
    left = [name for name in os.listdir(tmp_path) if not name.startswith(".checkpoint.")]
    assert len(left) == 3, left
    for path in make(tmp_path, 0)[1].checkpoints:
        assert len(os.listdir(path)) == 2


@pytest.mark.parametrize("is_new", [True, False])
def test_an_error_at_any_step_leaves_nothing_behind(tmp_path, is_new):
    """Until the index is in its place; then the new one is complete."""
    folder = tmp_path / "deep" / "ckpt"
    if not is_new:
        Checkpoint(v=Variable(value(1))).write(folder)
    failed, step = 0, 0
    while True:
        step += 1
        before = listing(tmp_path)
        v = Variable(value(step + 1))
        with pytest.MonkeyPatch.context() as patch:
            steps = Steps(patch, step, fail, None)
            failed += is_failing(Checkpoint(v=v), folder)
        if steps.number < step:
            break
        if listing(tmp_path) != before:
            v.assign(value(0))
            Checkpoint(v=v).read(folder).assert_consumed()
            assert (v.numpy() == step + 1).all()
            if is_new:
                break
    assert failed > 3


def is_failing(checkpoint, folder):
    try:
        checkpoint.write(folder)
    except CheckpointError as error:
        return "No space left" in str(error)
    return False


def listing(folder):
    return {path: path.is_dir() or path.read_bytes() for path in folder.rglob("*")}


def test_a_failed_save_counts_for_nothing(tmp_path, monkeypatch):
    checkpoint = Checkpoint(v=Variable(1.0))
    with monkeypatch.context() as patch:
        Steps(patch, 3, fail, None)
        with pytest.raises(CheckpointError):
            checkpoint.save(tmp_path / "ckpt")
    assert int(checkpoint.save_counter) == 0
    assert not list(tmp_path.iterdir())
    assert checkpoint.save(tmp_path / "ckpt").endswith("ckpt-1")


def test_a_disk_that_is_full(tmp_path):
    """The system's own error, of a file that may not grow so long."""
    import resource

    checkpoint = Checkpoint(v=Variable(np.zeros(200_000)))
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CheckpointError, match=str(tmp_path)):
            checkpoint.save(tmp_path / "ckpt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())
    checkpoint.save(tmp_path / "ckpt")
