"""Progress of a build: lines now and then in a log, one line with a bar in a terminal."""

import io

import pytest

pytest.importorskip("rich")

from rich.console import Console

from mpistrat.horovod_build import progress_line
from mpistrat.horovod_build.progress_line import ProgressLine

COMPILED = "  [ 42%] Building CXX object horovod/tensorflow/mpi_ops.cc.o"


def test_steps_are_lines_where_no_terminal_is(capsys):
    with ProgressLine() as line:
        line.step("fetching")
        line.step("compiling")
        line.follow(COMPILED)
    said = capsys.readouterr()
    assert said.err.splitlines() == ["fetching", "compiling"], "30 s have not passed"
    assert said.out == "", "it is for the path of the wheel"


def test_a_long_step_says_how_far_it_is(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress_line.time, "monotonic", lambda: now[0])
    with ProgressLine() as line:
        line.step("compiling")
        for now[0] in (20.0, 31.0, 32.0, 70.0):
            line.follow(COMPILED)
            line.follow("  g++ -c mpi_ops.cc [99%]")
    assert capsys.readouterr().err.splitlines() == [
        "compiling",
        "compiling: 42 %",
        "compiling: 42 %",
    ]


def test_a_terminal_has_one_line_with_a_bar(monkeypatch):
    out = io.StringIO()
    terminal = Console(file=out, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(progress_line, "Console", lambda **_: terminal)
    with ProgressLine() as line:
        line.step("compiling Horovod")
        line.follow(COMPILED)
    assert "compiling Horovod" in out.getvalue()
    assert "42 %" in out.getvalue()
    assert out.getvalue().count("\n") <= 1, "it is redrawn, not repeated"
