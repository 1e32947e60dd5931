"""A command's output is logged and followed, and its failure says where and why."""

import os
import time

import pytest

from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build.logged_commands import run_logged
from mpistrat.testing.sets import takes_long


@pytest.fixture
def log(tmp_path):
    return tmp_path / "build.log"


def shell(script):
    return ["/bin/sh", "-c", script]


def test_all_that_it_says_is_in_the_log(log):
    lines = []
    run_logged(shell("echo one; echo two >&2; printf three"), log, 20, "", follow=lines.append)
    run_logged(shell("echo four"), log, 20, "see the manual")
    text = log.read_text(encoding="utf-8")
    assert [line for line in lines if line][:2] == ["one", "two"]
    assert text.startswith("$ /bin/sh -c")
    assert text.index("one") < text.index("two") < text.index("three") < text.index("four")


def test_its_environment(log):
    run_logged(shell("echo $WHAT"), log, 20, "", env={"WHAT": "given"})
    assert "given" in log.read_text(encoding="utf-8")


def test_a_failure_names_the_log_and_the_lines_that_tell(log):
    script = "for i in 1 2 3; do echo compiling $i; done; echo x.cc:1: error: no such type; exit 7"
    with pytest.raises(BackendUnavailableError) as caught:
        run_logged(shell(script), log, 20, "see the manual")
    said = str(caught.value)
    assert "exited with 7; see the manual. Its log is" in said
    assert str(log) in said
    assert said.endswith("x.cc:1: error: no such type")


def test_the_last_lines_where_none_speaks_of_an_error(log):
    with pytest.raises(BackendUnavailableError, match="says:\nlast words"):
        run_logged(shell("echo last words; exit 1"), log, 20, "see the manual")


def test_a_program_that_is_not_there(log):
    with pytest.raises(BackendUnavailableError, match="cannot start /no/such/program"):
        run_logged(["/no/such/program"], log, 20, "see the manual")


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().split()[2] != "Z"
    except FileNotFoundError:
        return False


@takes_long()
@pytest.mark.parametrize("how", ["deadline", "interrupt"])
def test_its_child_processes_end_with_it(log, tmp_path, how):
    note = tmp_path / "pid"
    command = shell(f"sleep 60 & echo $! > {note}.new; mv {note}.new {note}; wait")

    def interrupt(_):
        if how == "interrupt" and note.exists():
            raise KeyboardInterrupt

    expected = BackendUnavailableError if how == "deadline" else KeyboardInterrupt
    start = time.monotonic()
    with pytest.raises(expected) as caught:
        run_logged(command, log, 3.0, "", follow=interrupt)
    assert time.monotonic() - start < 40
    if how == "deadline":
        assert "took longer than 3 s (--timeout)" in str(caught.value)
        assert str(log) in str(caught.value)
    child = int(note.read_text(encoding="utf-8"))
    end = time.monotonic() + 20
    while is_running(child) and time.monotonic() < end:
        os.sched_yield()
    assert not is_running(child)
