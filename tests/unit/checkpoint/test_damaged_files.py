"""Files that were changed, cut off or made up are named and refused before anything is changed."""

import json
import os
import threading

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mpistrat import Variable
from mpistrat.checkpoint.files import index
from mpistrat.errors import CheckpointError, CheckpointNotFoundError
from mpistrat.testing.sets import takes_long
from mpistrat.train import Checkpoint

FIRST = np.arange(12.0).reshape(3, 4)


@pytest.fixture
def saved(tmp_path):
    """Return a checkpoint's folder and its data file."""
    folder = tmp_path / "ckpt"
    Checkpoint(v=Variable(FIRST), n=5).write(folder)
    (data,) = folder.glob("*.safetensors")
    return folder, data


def refused(folder, words, kind=CheckpointError):
    """Check that a checkpoint is refused, and that nothing was changed."""
    v = Variable(np.full((3, 4), 9.0))
    checkpoint = Checkpoint(v=v, n=9)
    with pytest.raises(kind, match=words) as caught:
        checkpoint.read(folder)
    assert str(folder) in str(caught.value)
    assert (v.numpy() == 9.0).all()
    assert checkpoint.n == 9


@takes_long()
def test_every_byte_counts(saved):
    """One flipped bit anywhere: length, header, padding, values, index."""
    folder, data = saved
    for file in (data, folder / index.NAME):
        whole = file.read_bytes()
        for at in range(len(whole)):
            changed = bytearray(whole)
            changed[at] ^= 1 << at % 8
            file.write_bytes(changed)
            refused(folder, f"file {file.name} is not what was saved|{file.name} is of format")
        file.write_bytes(whole)
    Checkpoint(v=Variable(FIRST), n=0).read(folder).assert_consumed()


def test_every_length_counts(saved):
    folder, data = saved
    for file in (data, folder / index.NAME):
        whole = file.read_bytes()
        for length in range(len(whole)):
            file.write_bytes(whole[:length])
            refused(folder, f"file {file.name} is not what was saved")
        file.write_bytes(whole + b"\n")
        refused(folder, f"file {file.name} is not what was saved")
        file.write_bytes(whole)


def test_missing_files(saved):
    folder, data = saved
    data.rename(folder / "away")
    refused(folder, f"{data.name} is not what was saved: it is missing")
    (folder / index.NAME).unlink()
    refused(folder, "no complete checkpoint", CheckpointNotFoundError)


def test_a_file_of_another_save(saved, tmp_path):
    folder, data = saved
    tensors = load_file(data)
    tensors["v"] = tensors["v"] + 1
    save_file(tensors, data)
    refused(folder, f"{data.name} is not what was saved")


def test_a_link_out_of_the_folder(saved, tmp_path):
    folder, data = saved
    data.rename(tmp_path / "outside")
    data.symlink_to(tmp_path / "outside")
    refused(folder, "not a file of its own")


def forge(folder, change):
    """Change the index and give it the right checksum."""
    made = index.read(folder)
    change(made)
    (folder / index.NAME).write_bytes(index.pack(made))


def _rename(name):
    def change(made):
        made["files"][0]["name"] = name
        for tensor in made["tensors"].values():
            tensor["pieces"][0]["file"] = name

    return change


def _rows(rows):
    return lambda made: made["tensors"]["v"]["pieces"][0].update(rows=rows)


FORGED = {
    "../outside.safetensors": _rename("../outside.safetensors"),
    "/etc/x.safetensors": _rename("/etc/x.safetensors"),
    "a/b.safetensors": _rename("a/b.safetensors"),
    ".hidden.safetensors": _rename(".hidden.safetensors"),
    "outside of the checkpoint": _rename("index.json"),
    "not list": lambda made: made["tensors"]["v"]["pieces"][0].update(file="b.safetensors"),
    "expected each": _rows([1, 3]),
    "has 2 rows": _rows([0, 2]),
    "follow row": _rows([0, -1]),
    "version": lambda made: made.update(version=2),
    "format": lambda made: made.update(format="pickle"),
    "dtype 'object'": lambda made: made["tensors"]["v"].update(dtype="object"),
    "malformed": lambda made: made["tensors"].update(v=3),
    "malformed: ValueError": _rows([0]),
    "a child that is not there": lambda made: made["nodes"][0]["children"].update(x=99),
    "a tensor that is not there": lambda made: made["nodes"][0]["tensors"].update(x="y"),
    "no objects": lambda made: made.update(nodes=[]),
}


@pytest.mark.parametrize("words", FORGED)
def test_forged_indexes(saved, words):
    folder, _ = saved
    forge(folder, FORGED[words])
    refused(folder, words)


@pytest.mark.parametrize("text", ["", "3", "[]", "{}", '{"index": 3}', "[" * 10**5, "\xff"])
def test_what_is_no_index(saved, text):
    folder, _ = saved
    (folder / index.NAME).write_text(text)
    refused(folder, "index.json is not what was saved")


@pytest.mark.parametrize("made", [[], 3, "index", None])
def test_an_index_that_is_no_object(saved, made):
    folder, _ = saved
    (folder / index.NAME).write_bytes(index.pack(made))
    refused(folder, "malformed")


def test_files_hold_no_pickles(saved):
    folder, data = saved
    (folder / index.NAME).read_text("ascii")
    json.loads((folder / index.NAME).read_text())
    assert set(load_file(data)) == {"v"}


def test_other_files_stay(saved):
    folder, data = saved
    (folder / "notes.txt").write_text("mine")
    (folder / "mine.safetensors").write_text("mine")
    Checkpoint(v=Variable(FIRST + 1), n=5).write(folder)
    assert not data.exists()
    left = {file.name for file in folder.iterdir() if not file.name.startswith("data-")}
    assert left == {"index.json", "notes.txt", "mine.safetensors"}
    assert len(list(folder.iterdir())) == 4


def test_what_is_corrupt_can_be_saved_to(saved):
    folder, _ = saved
    (folder / index.NAME).write_text("{")
    Checkpoint(v=Variable(FIRST), n=6).write(folder)
    again = Checkpoint(v=Variable(FIRST * 0), n=0)
    again.read(folder).assert_consumed()
    assert again.n == 6


def test_savers_to_one_path_are_told_apart(tmp_path):
    folder, errors = tmp_path / "ckpt", []

    def save(number):
        checkpoint = Checkpoint(v=Variable(np.full(5000, float(number))), n=number)
        try:
            for _ in range(15):
                checkpoint.write(folder)
        except Exception as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=save, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    v = Variable(np.zeros(5000))
    checkpoint = Checkpoint(v=v, n=0)
    checkpoint.read(folder).assert_consumed()
    assert checkpoint.n in (1, 2, 3)
    assert (v.numpy() == checkpoint.n).all()
    assert len(os.listdir(folder)) == 2


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "ckpt").write_text("mine")
    with pytest.raises(CheckpointError, match="FileExistsError"):
        Checkpoint(v=Variable(1.0)).write(tmp_path / "ckpt")
    assert (tmp_path / "ckpt").read_text() == "mine"
