"""New files that replace others in one step."""

import pytest

from mpistrat.system.files.atomic_files import beside


def test_it_is_empty_and_beside_and_its_own(tmp_path):
    with beside(tmp_path / "a") as one, beside(tmp_path / "a") as other:
        assert one != other
        assert one.parent == other.parent == tmp_path
        assert one.name.startswith(".a.")
        assert one.read_bytes() == b""
    assert not list(tmp_path.iterdir())


def test_what_was_renamed_stays(tmp_path):
    target = tmp_path / "a"
    target.write_text("old")
    with beside(target) as new:
        new.write_text("new")
        assert target.read_text() == "old"
        new.replace(target)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["new"]


def test_nothing_is_left_after_an_error(tmp_path):
    with pytest.raises(KeyboardInterrupt), beside(tmp_path / "a"):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError), beside(tmp_path / "no" / "a"):
        raise AssertionError("unreachable")
