"""The parts of mpistrat.testing that need no MPI."""

import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mpistrat.testing.launching import processes
from mpistrat.testing.launching.leftovers import remove_segments
from mpistrat.testing.launching.running_job import RankOutput
from mpistrat.testing.layouts import LAYOUTS, Layout
from mpistrat.testing.sets import takes_long
from mpistrat.testing.tasks import spool
from mpistrat.testing.tasks.importing import load_test_module
from mpistrat.testing.tasks.spool import Outcome
from mpistrat.testing.tasks.watch import TaskResult


def sleeper(mark: str) -> subprocess.Popen[bytes]:
    code = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(99)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {processes.TOKEN_VARIABLE: mark},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_end_all_ends_its_own_and_no_other() -> None:
    token, mark = processes.new_token()
    ours, other = sleeper(mark), sleeper(processes.new_token()[1])
    try:
        assert processes.end_all(token, [ours.pid], grace_s=0.1) == []
        assert ours.wait(5) == -signal.SIGKILL  # it ignores the polite signal
        assert processes.is_alive(other.pid)
    finally:
        other.kill()
        other.wait()
    assert not processes.is_alive(other.pid)


def test_only_memory_that_a_killed_job_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ages = {
        "mpich_shm_1f_0": 60.0,
        "mpich_vci_1f_0": 60.0,
        "mpich_shm_2f_0": 60.0,  # mapped below
        "mpich_shm_3f_0": 0.0,  # its job may be about to map it
        "mpistrat-1-1f": 60.0,
    }
    folder = tmp_path / "shm"
    folder.mkdir()
    for name, age_s in ages.items():
        (folder / name).write_bytes(b"memory")
        os.utime(folder / name, (time.time() - age_s,) * 2)
    (folder / "mpich_shm_4f_0").symlink_to(folder / "mpich_shm_4f_0")
    (folder / "mpich_shm_5f_0").mkdir()
    os.utime(folder / "mpich_shm_5f_0", (0, 0))
    before = {path.name for path in folder.iterdir()}
    (tmp_path / "link").symlink_to(folder)  # maps have its target

    with (folder / "mpich_shm_2f_0").open("r+b") as file, mmap.mmap(file.fileno(), 0):
        with monkeypatch.context() as context:
            context.setattr(os, "geteuid", lambda: os.getuid() + 1)
            assert remove_segments(folder) == []
        removed = {path.name for path in remove_segments(tmp_path / "link")}
    assert removed == {"mpich_shm_1f_0", "mpich_vci_1f_0"}
    assert {path.name for path in folder.iterdir()} == before - removed


def test_inner_job_belongs_to_the_outer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    outer, mark = processes.new_token()
    monkeypatch.setenv(processes.TOKEN_VARIABLE, mark)
    inner, mark = processes.new_token()
    assert outer in mark
    assert inner in mark


def test_layouts_are_the_promised_ones() -> None:
    assert [str(layout) for layout in LAYOUTS] == ["1x2", "1x4", "2x1", "3x1", "2x2"]
    assert [layout.replicas for layout in LAYOUTS] == [2, 4, 2, 3, 4]
    assert Layout(1, 2).device_names == ["CPU:0", "CPU:1"]


def test_spooled_file_is_complete_once_seen(tmp_path: Path) -> None:
    file = tmp_path / "value"
    assert spool.get(file) is None
    big = os.urandom(1 << 22)
    writer = threading.Thread(target=spool.put, args=(file, big))
    writer.start()
    assert spool.wait_for(file) == big
    writer.join()
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("verdicts", "problem", "expected"),
    [
        (["passed", "passed"], "", "passed"),
        (["skipped", "skipped"], "", "skipped"),
        (["passed", "skipped"], "", "failed"),
        (["passed", None], "", "failed"),
        (["passed", "failed"], "", "failed"),
        (["passed", "passed"], "barrier", "failed"),
    ],
)
def test_verdict_of_a_task(verdicts: list, problem: str, expected: str) -> None:
    outcomes = tuple(verdict and Outcome(verdict, "why") for verdict in verdicts)
    result = TaskResult(outcomes, (RankOutput("out 0", ""), RankOutput("", "err 1")), problem)
    assert result.verdict == expected
    report = result.report()
    assert report.startswith(problem)
    assert report.index("rank 0 of 2") < report.index("out 0") < report.index("rank 1 of 2")


def test_module_is_loaded_once_and_asserts_show_values(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text("def check(x):\n    assert x == 3\n")
    module = load_test_module("a.name.of.its.own", file)
    try:
        assert load_test_module("a.name.of.its.own", file) is module
        with pytest.raises(AssertionError, match="assert 2 == 3"):
            module.check(2)
    finally:
        del sys.modules["a.name.of.its.own"]


def test_failed_import_leaves_no_module(tmp_path: Path) -> None:
    file = tmp_path / "test_bad.py"
    file.write_text("raise KeyError('in the file')\n")
    with pytest.raises(KeyError, match="in the file"):
        load_test_module("a.bad.name", file)
    assert "a.bad.name" not in sys.modules


@takes_long()
def test_hang_in_this_process_fails_at_its_deadline(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        """
        import threading, pytest

        @pytest.mark.deadline(0.5)
        def test_hangs():
            thread = threading.Thread(target=threading.Event().wait, args=(3,), name="helper")
            thread.start()
            threading.Event().wait()

        def test_next(): pass
        """
    )
    result = inner.runpytest_subprocess("-p", "no:cacheprovider", timeout=30)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*deadline of 0.5 s passed", "*thread helper:"])
