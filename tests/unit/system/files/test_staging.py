"""Folders to write new files in: outside of the target's folder, with the same rights."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from mpistrat.system.files import staging
from mpistrat.system.files.job_folder import in_temp, made_for
from mpistrat.system.files.staging import Staging


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Return the job's places; the target's folder is tmp_path/project/run."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "project" / "run").mkdir(parents=True)
    monkeypatch.setenv("MPISTRAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    made = Staging("saves", "a", made_for("saves", "a"))
    yield made
    made.leave()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "project" / "run" / "m.keras"


def unlike(monkeypatch, *folders):
    """Let new files in these folders be unlike those elsewhere."""
    inherited = staging._inherited

    def told(folder):
        is_one = any(folder.is_relative_to(one) for one in folders)
        return (-1, -1, ()) if is_one else inherited(folder)

    monkeypatch.setattr(staging, "_inherited", told)


def own_ancestor(monkeypatch, folder):
    monkeypatch.setattr(staging, "_topmost_own", lambda _: folder)


def test_first_the_jobs_folder(places, target):
    with places.place_for(target) as place:
        assert place.parent == places.path
    assert not place.exists()


def test_then_the_temporary_files(places, target, monkeypatch, tmp_path):
    unlike(monkeypatch, tmp_path / "cache")
    with places.place_for(target) as place:
        assert place.parent == in_temp("saves", "a")
    places.leave()
    assert not list((tmp_path / "tmp").iterdir())


def test_then_a_hidden_folder_above(places, target, monkeypatch, tmp_path):
    unlike(monkeypatch, tmp_path / "cache", tmp_path / "tmp")
    own_ancestor(monkeypatch, tmp_path / "project")
    with places.place_for(target) as place:
        assert place.parent == tmp_path / "project"
        assert place.name.startswith(".mpistrat-")
        assert [note.read_text() for note in places.path.glob("hidden-*")] == [str(place)]
    assert not list(places.path.glob("hidden-*"))
    assert os.listdir(tmp_path / "project") == ["run"]


def test_last_a_hidden_folder_beside(places, target, monkeypatch, tmp_path):
    unlike(monkeypatch, tmp_path / "cache", tmp_path / "tmp")
    own_ancestor(monkeypatch, None)
    with places.place_for(target) as place:
        assert place.parent == target.parent
    assert not os.listdir(target.parent)


def test_a_folder_that_gives_its_group_has_its_files_made_in_it(places, target, monkeypatch):
    own_ancestor(monkeypatch, target.parent.parent)
    target.parent.chmod(0o2755)
    with places.place_for(target) as place:
        assert place.parent == target.parent
    target.parent.parent.chmod(0o2755)
    with places.place_for(target) as place:
        assert place.parent == target.parent.parent


def test_a_place_that_cannot_be_written_to_is_passed_over(places, target, monkeypatch, tmp_path):
    unlike(monkeypatch, tmp_path / "cache", tmp_path / "tmp")
    (tmp_path / "file").touch()
    own_ancestor(monkeypatch, tmp_path / "file")
    with places.place_for(target) as place:
        assert place.parent == target.parent


def test_a_folder_that_will_be_made(places, target):
    with places.place_for(target.parent / "new" / "newer" / "m") as place:
        assert place.parent == places.path


def test_without_a_folder_of_the_job(target, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    target.parent.mkdir(parents=True)
    unlike(monkeypatch, tmp_path / "tmp")
    own_ancestor(monkeypatch, None)
    with Staging("saves", "a", None).place_for(target) as place:
        assert place.parent == target.parent


def test_the_topmost_own_folder_of_the_file_system(tmp_path, monkeypatch):
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    owner = tmp_path.stat().st_uid
    assert staging._topmost_own(folder) in folder.parents
    assert staging._topmost_own(folder) != Path("/")
    monkeypatch.setattr(os, "geteuid", lambda: owner + 4711)
    assert staging._topmost_own(folder) is None


def test_between_parts_of_a_file_system_a_copy_is_renamed(places, target, monkeypatch):
    replace, asked = os.replace, []

    def refuse(source, to):
        asked.append(Path(source))
        if Path(source).parent.parent == places.path:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(source, to)

    monkeypatch.setattr(os, "replace", refuse)
    with places.place_for(target) as place:
        (place / "m.keras").write_text("whole")
        places.move(place / "m.keras", target)
    assert target.read_text() == "whole"
    assert asked[1].parent.name.startswith(".mpistrat-")
    assert os.listdir(target.parent) == ["m.keras"]


def test_other_errors_of_renaming_are_raised(places, target):
    with places.place_for(target) as place, pytest.raises(FileNotFoundError):
        places.move(place / "none", target)
