"""A manager keeps the last checkpoints of a folder, and goes on with what is there."""

import json
import os
import time

import numpy as np
import pytest

from mpistrat import Variable
from mpistrat.errors import ArgumentTypeError, CheckpointError, UsageError
from mpistrat.train import Checkpoint, CheckpointManager, latest_checkpoint


def made(folder, max_to_keep=2, **options):
    checkpoint = Checkpoint(v=Variable(0.0), step=Variable(0))
    return checkpoint, CheckpointManager(checkpoint, folder, max_to_keep, **options)


def names(manager):
    return [os.path.basename(path) for path in manager.checkpoints]


def folders(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_a_file_is_no_folder_of_checkpoints(tmp_path):
    (tmp_path / "train.py").touch()
    for use in (made, latest_checkpoint):
        with pytest.raises(CheckpointError, match=r"train\.py is a file; expected a folder"):
            use(tmp_path / "train.py")


def test_the_last_are_kept(tmp_path):
    checkpoint, manager = made(tmp_path)
    assert (manager.latest_checkpoint, manager.checkpoints) == (None, [])
    assert latest_checkpoint(tmp_path) is None
    for number in (1, 2, 3):
        checkpoint.v.assign(float(number))
        assert manager.save() == f"{tmp_path}/ckpt-{number}"
        assert manager.latest_checkpoint == latest_checkpoint(tmp_path)
    assert names(manager) == folders(tmp_path) == ["ckpt-2", "ckpt-3"]
    assert (manager.directory, manager.checkpoint) == (str(tmp_path), checkpoint)
    checkpoint.restore(manager.checkpoints[0]).assert_consumed()
    assert float(checkpoint.v) == 2.0


def test_another_manager_goes_on(tmp_path):
    made(tmp_path)[1].save()
    made(tmp_path)[1].save(checkpoint_number=7)
    checkpoint, manager = made(tmp_path)
    assert names(manager) == ["ckpt-1", "ckpt-7"]
    assert manager.restore_or_initialize() == f"{tmp_path}/ckpt-7"
    assert int(checkpoint.save_counter) == 1
    manager.save()
    assert names(manager) == ["ckpt-7", "ckpt-2"]
    assert folders(tmp_path) == ["ckpt-2", "ckpt-7"]


def test_all_are_kept(tmp_path):
    _, manager = made(tmp_path, None, checkpoint_name="all")
    for _ in range(4):
        manager.save()
    assert folders(tmp_path) == ["all-1", "all-2", "all-3", "all-4"]


def test_a_number_that_is_there_already(tmp_path):
    checkpoint, manager = made(tmp_path)
    for value in (1.0, 2.0, 3.0):
        checkpoint.v.assign(value)
        manager.save(checkpoint_number=np.int64(5))
    assert names(manager) == folders(tmp_path) == ["ckpt-5"]
    checkpoint.v.assign(0.0)
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()
    assert float(checkpoint.v) == 3.0


def test_one_is_kept_every_few_hours(tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "time", lambda: now)
    _, manager = made(tmp_path, 1, keep_checkpoint_every_n_hours=2)
    for _ in range(6):  # one an hour
        now += 3600
        manager.save()
    assert names(manager) == ["ckpt-6"]
    assert folders(tmp_path) == ["ckpt-2", "ckpt-4", "ckpt-6"]


def test_an_interval(tmp_path):
    step = Variable(0)
    _, manager = made(tmp_path, step_counter=step, checkpoint_interval=10)
    saved = []
    for value in (0, 5, 9, 10, 19, 20):
        step.assign(value)
        if manager.save():
            saved.append(value)
    assert saved == [0, 10, 20]
    assert manager.save() is None
    assert manager.save(check_interval=False)
    assert manager.checkpoint_interval == 10


def test_restore_or_initialize(tmp_path):
    called = []
    _, manager = made(tmp_path, init_fn=lambda: called.append(1))
    assert manager.restore_or_initialize() is None
    assert called == [1]
    manager.save()
    assert manager.restore_or_initialize() == manager.latest_checkpoint
    assert called == [1]


def test_deleted_checkpoints_are_passed_over(tmp_path):
    _, manager = made(tmp_path, 3)
    for _ in range(3):
        manager.save()
    (tmp_path / "ckpt-3" / "index.json").unlink()
    assert latest_checkpoint(tmp_path) == f"{tmp_path}/ckpt-2"
    _, again = made(tmp_path, 3)
    assert names(again) == ["ckpt-1", "ckpt-2"]
    again.save(checkpoint_number=9)
    assert folders(tmp_path) == ["ckpt-1", "ckpt-2", "ckpt-9"]


def test_a_folder_can_be_moved(tmp_path):
    made(tmp_path / "a")[1].save()
    (tmp_path / "a").rename(tmp_path / "b")
    assert latest_checkpoint(tmp_path / "b") == f"{tmp_path}/b/ckpt-1"


def test_files_of_others_stay(tmp_path):
    _, manager = made(tmp_path, 1)
    path = manager.save()
    (tmp_path / "ckpt-1" / "notes").write_text("mine")
    manager.save()
    assert os.listdir(path) == ["notes"]
    assert latest_checkpoint(tmp_path) == f"{tmp_path}/ckpt-2"


def test_an_old_one_that_cannot_be_deleted(tmp_path, monkeypatch, caplog):
    _, manager = made(tmp_path, 1)
    manager.save()

    def refuse(*ignored):
        raise PermissionError(13, "not yours")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", refuse)
        manager.save()
    assert "ckpt-1 could not be deleted" in caplog.text
    assert names(manager) == ["ckpt-2"]
    manager.save()
    assert folders(tmp_path) == ["ckpt-3"]


POINTERS = ["", "{", "3", '{"names": 3}', '{"names": ["../x"], "times": [1.0]}']
POINTERS += ['{"names": ["x"], "times": []}', '{"names": ["x"], "times": ["y"]}']
POINTERS += ['model_checkpoint_path: "ckpt-1"']


@pytest.mark.parametrize("text", POINTERS)
def test_a_list_that_is_not_ours(tmp_path, text):
    (tmp_path / "checkpoint").write_text(text)
    for call in (lambda: latest_checkpoint(tmp_path), lambda: made(tmp_path)):
        with pytest.raises(CheckpointError, match=r"checkpoint is not a file that mpistrat wrote"):
            call()
    assert (tmp_path / "checkpoint").read_text() == text


def test_the_list_is_json(tmp_path):
    made(tmp_path)[1].save()
    said = json.loads((tmp_path / "checkpoint").read_text())
    assert said["names"] == ["ckpt-1"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_to_keep": 0}, "max_to_keep=0"),
        ({"max_to_keep": -1}, "max_to_keep=-1"),
        ({"max_to_keep": 1.5}, "max_to_keep=1.5; expected a whole number"),
        ({"max_to_keep": "2"}, "max_to_keep='2'; expected a whole number"),
        ({"checkpoint_interval": 3}, "without a step_counter"),
        ({"checkpoint_name": "a/b"}, "expected a name"),
    ],
)
def test_arguments(tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        made(tmp_path, **options)
    with pytest.raises(ArgumentTypeError, match="expected a Checkpoint"):
        CheckpointManager(Variable(1.0), tmp_path, 1)
    with pytest.raises(UsageError, match="checkpoint_number=-1; expected"):
        made(tmp_path)[1].save(-1)


@pytest.mark.parametrize("name", ["..", ""])
def test_a_list_deletes_nothing_outside_of_its_folder(tmp_path, name):
    """Neither what is above it, nor itself."""
    for folder in (tmp_path, tmp_path / "managed"):
        Checkpoint(v=Variable(1.0)).write(folder)
    before = sorted(tmp_path.rglob("*"))
    pointer = tmp_path / "managed" / "checkpoint"
    pointer.write_text(json.dumps({"names": [name], "times": [1.0]}))
    with pytest.raises(CheckpointError, match="is not a file that mpistrat wrote"):
        CheckpointManager(Checkpoint(v=Variable(2.0)), pointer.parent, max_to_keep=1).save()
    assert sorted(tmp_path.rglob("*")) == sorted([*before, pointer])
