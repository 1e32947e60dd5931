"""Ranks that make the same folder at once; folders of before the job are an error as ever."""

import os
import tempfile
import time
from pathlib import Path

import pytest

from mpistrat.run import folders

PYTHONS = os.mkdir


@pytest.fixture(autouse=True)
def shared(monkeypatch):
    monkeypatch.setattr(os, "mkdir", PYTHONS)
    folders.let_ranks_share(str(Path(__file__).parent))


@pytest.mark.parametrize("make", ["os.mkdir(path)", "os.makedirs(path)", "Path(path).mkdir()"])
def test_a_folder_that_another_rank_made(make, tmp_path):
    names = {"__name__": "__main__", "os": os, "Path": Path, "path": tmp_path / "new"}
    for _ in range(2):
        eval(make, names)
    assert (tmp_path / "new").is_dir()


def test_what_is_older_or_no_folder(tmp_path, monkeypatch):
    (tmp_path / "old").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        os.makedirs(tmp_path / "file")
    os.mkdir(tmp_path / "old")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 60)
    os.mkdir = PYTHONS
    folders.let_ranks_share(str(Path(__file__).parent))
    with pytest.raises(FileExistsError):
        os.mkdir(tmp_path / "old")


def test_a_folder_that_is_the_lock_of_a_library(tmp_path):
    library = {"__name__": "library", "os": os, "path": tmp_path / "lock"}
    code = compile("os.mkdir(path)", "/usr/lib/site-packages/library.py", "exec")
    exec(code, library)
    with pytest.raises(FileExistsError):
        exec(code, library)
    exec(code, {**library, "__name__": "__main__"})
    assert (tmp_path / "lock").is_dir()


def test_names_that_nobody_else_may_have(tmp_path, monkeypatch):
    names = iter(["same", "same", "other"])
    monkeypatch.setattr(tempfile, "_get_candidate_names", lambda: names)
    made = {tempfile.mkdtemp(dir=tmp_path, prefix="") for _ in range(2)}
    assert {Path(path).name for path in made} == {"same", "other"}
