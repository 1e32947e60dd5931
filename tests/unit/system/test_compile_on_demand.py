"""Sources compiled on first use: once, whole, and never what others could have written."""

import ctypes
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mpistrat.errors import BackendUnavailableError
from mpistrat.system import compile_on_demand

SOURCE = 'extern "C" int answer() { return ANSWER; }\n'
FLAGS = ["-DANSWER=42"]

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="found no C++ compiler"
)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    folder = tmp_path / "cache"
    monkeypatch.setenv("MPISTRAT_CACHE", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    return folder


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "answer.cc"
    file.write_text(SOURCE)
    return file


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Return the file to which the compiler writes a line whenever it runs."""
    runs = tmp_path / "runs"
    script = tmp_path / "compiler"
    script.write_text(
        f'#!/bin/sh\necho run >> "{runs}"\nexec {compile_on_demand.compiler()[0]} "$@"\n'
    )
    script.chmod(0o700)
    runs.touch()
    monkeypatch.setenv("CXX", str(script))
    return runs


def answer(file: Path) -> int:
    return ctypes.CDLL(str(file)).answer()


def test_a_line_says_that_the_compiler_runs_and_only_then(cache, source, caplog):
    compile_on_demand.shared_object(source, FLAGS, "")
    (line,) = caplog.messages
    assert line.startswith("compiling answer.cc with ")
    assert str(cache) in line
    compile_on_demand.shared_object(source, FLAGS, "")
    assert len(caplog.messages) == 1


def test_it_is_compiled_once_into_a_folder_of_ours(cache, source, counted):
    file = compile_on_demand.shared_object(source, FLAGS, "")
    assert file == compile_on_demand.shared_object(source, FLAGS, "")
    assert file.parent == cache
    assert cache.stat().st_mode & 0o777 == 0o700
    assert counted.read_text().splitlines() == ["run"]
    assert answer(file) == 42
    assert sorted(f.suffix for f in cache.iterdir()) == [".lock", ".so"]


def test_other_flags_versions_and_texts_are_compiled_anew(cache, source):
    files = [
        compile_on_demand.shared_object(source, FLAGS, "1"),
        compile_on_demand.shared_object(source, FLAGS, "2"),
        compile_on_demand.shared_object(source, ["-DANSWER=1"], "1"),
    ]
    source.write_text(SOURCE.replace("ANSWER;", "ANSWER + 1;"))
    files.append(compile_on_demand.shared_object(source, FLAGS, "1"))
    assert len(set(files)) == 4
    assert [answer(file) for file in files] == [42, 42, 1, 43]


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def change_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def let_others_write(file: Path) -> None:
    file.chmod(0o722)


def replace_by_a_link(file: Path) -> None:
    file.symlink_to(file.rename(file.with_suffix(".other")))


@pytest.mark.parametrize(
    "spoil", [cut_short, change_a_byte, empty, let_others_write, replace_by_a_link]
)
def test_a_file_that_cannot_be_trusted_is_replaced(cache, source, counted, spoil):
    file = compile_on_demand.shared_object(source, FLAGS, "")
    spoil(file)
    assert compile_on_demand.shared_object(source, FLAGS, "") == file
    assert counted.read_text().splitlines() == ["run", "run"]
    assert not file.is_symlink()
    assert answer(file) == 42


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_replaced_and_a_folder_refused(cache, source, counted):
    file = compile_on_demand.shared_object(source, FLAGS, "")
    os.chown(file, 12345, 12345)
    assert compile_on_demand.shared_object(source, FLAGS, "").stat().st_uid == 0
    assert len(counted.read_text().splitlines()) == 2
    os.chown(cache, 12345, 12345)
    with pytest.raises(BackendUnavailableError, match="belongs to another user"):
        compile_on_demand.shared_object(source, FLAGS, "")


def test_a_folder_that_others_may_write_to_is_refused(cache, source):
    cache.mkdir()
    cache.chmod(0o770)
    with pytest.raises(BackendUnavailableError, match=r"chmod 700 it, or set MPISTRAT_CACHE"):
        compile_on_demand.shared_object(source, FLAGS, "")


def test_a_header_that_changes_is_compiled_anew(cache, source, counted):
    source.write_text('#include "answer.h"\n' + SOURCE)
    for number, runs in ((42, 1), (42, 1), (43, 2)):
        source.with_name("inner.h").write_text(f"#define ANSWER {number}\n")
        source.with_name("answer.h").write_text('#include <cstdint>\n#include "inner.h"\n')
        assert answer(compile_on_demand.shared_object(source, [], "")) == number
        assert counted.read_text().splitlines() == ["run"] * runs


def test_many_at_once_compile_once(cache, source, counted):
    with ThreadPoolExecutor(4) as pool:
        files = set(
            pool.map(lambda _: compile_on_demand.shared_object(source, FLAGS, ""), range(8))
        )
    assert counted.read_text().splitlines() == ["run"]
    assert answer(files.pop()) == 42
    assert not files


def test_without_a_compiler(cache, source, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendUnavailableError, match=r"none of g\+\+, c\+\+, clang\+\+ is on"):
        compile_on_demand.shared_object(source, FLAGS, "")
    monkeypatch.setenv("CXX", "nosuch++ -O3")
    with pytest.raises(BackendUnavailableError, match=r"CXX='nosuch\+\+' is on the PATH"):
        compile_on_demand.shared_object(source, FLAGS, "")
    monkeypatch.setenv("CXX", "g++ '")
    with pytest.raises(BackendUnavailableError, match="No closing quotation; set CXX"):
        compile_on_demand.shared_object(source, FLAGS, "")


def test_a_failure_tells_what_the_compiler_said_and_leaves_nothing(cache, source):
    source.write_text("int main() { return nowhere; }\n")
    with pytest.raises(BackendUnavailableError, match=r"(?s)exited with 1:\n.*nowhere"):
        compile_on_demand.shared_object(source, FLAGS, "")
    assert [f.suffix for f in cache.iterdir()] == [".lock"]


def _ends(pid: int, within_s: float = 10) -> bool:
    """Tell whether a process ends; a killed one may still run for a moment."""
    status = Path(f"/proc/{pid}/stat")
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if status.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_a_compiler_that_takes_too_long_is_ended_with_its_processes(
    cache, source, monkeypatch, tmp_path
):
    pid = tmp_path / "pid"
    monkeypatch.setenv("MPISTRAT_COMPILE_TIMEOUT", "0.5")
    monkeypatch.setenv("CXX", f"sh -c 'sleep 100 & echo $! > {pid}; wait'")
    with pytest.raises(BackendUnavailableError, match=r"sh took longer than 0\.5 s"):
        compile_on_demand.shared_object(source, FLAGS, "")
    if sys.platform == "linux":
        assert _ends(int(pid.read_text()))


def test_a_folder_that_cannot_be_made(source, monkeypatch, tmp_path):
    monkeypatch.setenv("MPISTRAT_CACHE", str(source / "inside"))
    with pytest.raises(BackendUnavailableError, match=r"cannot compile answer\.cc: .*Not a dir"):
        compile_on_demand.shared_object(source, FLAGS, "")
