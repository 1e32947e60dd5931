"""A file that ranks download at once is never seen in part."""

import os
import urllib.error
import urllib.request

import pytest

from mpistrat.run import downloads


@pytest.fixture
def retrieve(monkeypatch):
    monkeypatch.setattr(urllib.request, "urlretrieve", urllib.request.urlretrieve)
    downloads.write_downloads_whole()
    return urllib.request.urlretrieve


@pytest.mark.parametrize("is_there", [False, True])
def test_it_appears_whole(retrieve, tmp_path, is_there):
    (tmp_path / "source").write_bytes(b"x" * 100_000)
    target = tmp_path / "target"
    if is_there:
        target.write_bytes(b"old")
    seen = []

    def look(*_):
        seen.append(target.read_bytes() if target.exists() else None)

    got, headers = retrieve((tmp_path / "source").as_uri(), str(target), look)
    assert got == str(target)
    assert headers["Content-Length"] == "100000"
    assert len(seen) > 1
    assert set(seen) == {b"old" if is_there else None}
    assert target.read_bytes() == b"x" * 100_000
    assert sorted(os.listdir(tmp_path)) == ["source", "target"]


def test_an_error_leaves_nothing(retrieve, tmp_path):
    with pytest.raises(urllib.error.URLError):
        retrieve((tmp_path / "missing").as_uri(), tmp_path / "target")
    assert os.listdir(tmp_path) == []


def test_without_a_name(retrieve, tmp_path):
    (tmp_path / "source").write_bytes(b"x")
    assert retrieve((tmp_path / "source").as_uri())[0] == str(tmp_path / "source")
