"""Folders of jobs: gone after the last process, or when a later job finds them."""

import os
import tempfile

import pytest

from mpistrat.system.files import job_folder
from mpistrat.system.files.job_folder import JobFolder, in_temp, joined, made_for, remove_left

DAY_S = 24 * 3600


@pytest.fixture(autouse=True)
def _own_places(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("MPISTRAT_CACHE", str(tmp_path / "home" / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


def aged(folder, days):
    then = folder.path.stat().st_mtime - days * DAY_S
    os.utime(folder.path, (then, then))


def test_the_last_process_removes_it():
    first = made_for("saves", "a")
    second = joined("saves", "a", first.path)
    assert first.is_common
    assert second.is_common
    first.leave()
    assert first.path.is_dir()
    second.leave()
    assert not first.path.exists()


def test_only_this_user_can_look_into_it_and_into_the_cache(tmp_path):
    before = os.umask(0o002)
    try:
        made = made_for("saves", "a")
    finally:
        os.umask(before)
    assert made.path.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "home" / "cache").stat().st_mode & 0o777 == 0o700


def test_a_child_of_a_process_leaves_it_alone(monkeypatch):
    made = made_for("saves", "a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        made.leave()
    assert made.path.is_dir()
    made.leave()
    assert not made.path.exists()


def test_a_rank_that_does_not_see_it_has_one_with_the_temporary_files(tmp_path):
    made = joined("saves", "a", tmp_path / "elsewhere")
    assert made.path == in_temp("saves", "a")
    again = joined("saves", "a", made.path)  # of rank 0, on another machine
    assert again.path == made.path
    assert not made.is_common
    assert not again.is_common


def test_without_a_cache_folder_it_is_with_the_temporary_files(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MPISTRAT_CACHE", str(tmp_path / "file"))
    made = made_for("saves", "a")
    assert made.path == in_temp("saves", "a")
    assert joined("saves", "a", made.path).is_common


def test_a_folder_of_another_user_is_not_used(monkeypatch):
    made = made_for("saves", "a")
    monkeypatch.setattr(os, "geteuid", lambda: made.path.stat().st_uid + 1)
    assert joined("saves", "a", made.path) is None


def test_it_is_made_again_if_somebody_has_removed_it():
    made = made_for("saves", "a")
    JobFolder(made.path)._in_use.close()
    job_folder.shutil.rmtree(made.path)
    with made.inside() as inside:
        assert inside.parent == made.path
    assert not inside.exists()
    made.leave()
    assert not made.path.exists()


def test_what_a_killed_job_has_left_is_removed_a_day_later(tmp_path):
    for left in (made_for("saves", "a"), JobFolder(in_temp("saves", "b"))):
        hidden = left.hidden_in(tmp_path)
        inside = hidden.__enter__()
        (inside / "part").touch()
        left._in_use.close()  # as the kernel does
        remove_left("saves")
        assert left.path.is_dir()
        aged(left, 1.1)
        remove_left("saves")
        assert not left.path.exists()
        assert not inside.exists()


def test_a_note_of_another_folder_removes_nothing(tmp_path):
    left = made_for("saves", "a")
    (left.path / "hidden-ab").write_text(str(tmp_path / "home"))
    left._in_use.close()
    aged(left, 2)
    remove_left("saves")
    assert not left.path.exists()
    assert (tmp_path / "home").is_dir()


def test_an_old_folder_in_use_stays():
    made = made_for("saves", "a")
    aged(made, 9)
    remove_left("saves")
    assert made.path.is_dir()
    made.leave()
