"""The build of the libraries, and the environment in which commands find them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu.pretend import build, run

pytestmark = pytest.mark.skipif(build.why_not() is not None, reason=str(build.why_not()))
SMALL = {"librocfft.so.0": build.PARTS["librocfft.so.0"]}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MPISTRAT_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "PARTS", SMALL)
    return tmp_path


def test_it_is_built_once(cache):
    folder = build.build()
    assert folder.parent == cache
    library = folder / "librocfft.so.0"
    before = library.stat().st_mtime_ns
    assert build.build() == folder
    assert library.stat().st_mtime_ns == before
    assert {path.name for path in folder.iterdir()} == set(SMALL)


def test_another_compiler_or_source_has_a_folder_of_its_own(cache, monkeypatch, tmp_path):
    folders = {build.build()}
    monkeypatch.setattr(build, "FLAGS", [*build.FLAGS, "-DOTHER"])
    folders.add(build.build())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "one.cc").write_text("// new")
    monkeypatch.setattr(build, "FOLDER", tmp_path / "other")
    folders.add(build.build())
    assert len(folders) == 3


def test_old_builds_go(cache):
    now = time.time()
    for days in range(9):
        folder = cache / f"pretended-gpu-{days}"
        folder.mkdir()
        os.utime(folder, (now, now - 86400 * days))
    kept = build.build()
    left = {path.name for path in cache.iterdir() if path.is_dir()}
    assert left == {kept.name, *(f"pretended-gpu-{days}" for days in range(3))}
    os.utime(kept, (now, now - 86400 * 9))
    assert build.build() == kept  # it is in use again
    assert kept.stat().st_mtime > now - 86400


def test_a_failure_shows_the_messages_and_leaves_nothing(cache, monkeypatch, tmp_path):
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "wrong.cc").write_text("int wrong() { return unknown; }")
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    monkeypatch.setattr(build, "PARTS", {"wrong.so": build.Part(("sources/*.cc",))})
    with pytest.raises(RuntimeError, match=r"unknown.* was not declared"):
        build.build()
    left = {path.name for path in cache.iterdir()}
    assert left == {"sources", "pretended-gpu.lock"}


def test_commands_find_ours_first(cache, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")
    monkeypatch.delenv("CUPY_CACHE_DIR", raising=False)
    found = run.environment()
    folder = str(build.build())
    assert found["LD_LIBRARY_PATH"].split(os.pathsep) == [folder, "/elsewhere"]
    assert Path(found["PATH"].split(os.pathsep)[0], "hipcc").exists()
    assert Path(found["CUPY_CACHE_DIR"]).is_relative_to(folder)


def test_hipcc_names_the_headers():
    folder = build.FOLDER / "bin"
    command = [str(folder / "hipcc"), "-x", "hip", "-E", "-v", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    lines = [line.strip() for line in done.stderr.splitlines()]
    assert Path(lines[1], "hip", "hip_fp16.h").exists()
    command = [str(folder / "hipcc"), "x.cc"]
    other = subprocess.run(command, capture_output=True, timeout=20, check=False)
    assert other.returncode == 1


def test_no_command():
    done = subprocess.run(
        [sys.executable, run.__file__], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 1
    assert "COMMAND" in done.stderr
