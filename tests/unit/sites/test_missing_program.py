"""A program whose file is not there is told before its job is submitted."""

import pytest
from typer.testing import CliRunner

from mpistrat.sites.command import app
from mpistrat.sites.missing_program import notices_of_program
from mpistrat.sites.rendering.options import Options, Strategy

ARGUMENTS = "; each of its arguments is a word of its own: -- train.py --epochs 3"
RENDER = ("render", "--site", "perlmutter", "--strategy", "mirrored", "--account", "a")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder that has a program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ok.py").touch()
    (tmp_path / "two words.py").touch()
    return tmp_path


def notices(*program, **others):
    return list(notices_of_program(Options(Strategy.MIRRORED, program, **others)))


@pytest.mark.parametrize(
    ("program", "file", "hint"),
    [
        (["nofile.py", "--epochs", "3"], "nofile.py", ""),
        (["ok.py --epochs 3"], "ok.py --epochs 3", ARGUMENTS),
        (["~/ok.py"], "~/ok.py", "; `~` is expanded by your shell only without quotes"),
        (["./a.out"], "./a.out", ""),
        (["python3.11", "nofile"], "nofile", ""),
        (["/usr/bin/python", "nofile.py"], "nofile.py", ""),
    ],
)
def test_a_file_that_is_not_there(folder, program, file, hint):
    said = [f"the program {file!r} is not there, seen from {folder}{hint}"]
    assert notices(*program) == said
    assert notices(*program, container="image.sif") == []


@pytest.mark.parametrize(
    "program",
    [
        ["ok.py"],
        ["./ok.py", "nofile.py"],
        ["two words.py"],
        ["-m", "package.py"],
        ["python", "-c", "pass"],
        ["python", "ok.py"],
        ["python"],
        ["mpistrat", "doctor"],
        [],
    ],
)
def test_what_is_there_or_not_known(program):
    assert notices(*program) == []


def test_render_says_so(folder):
    result = CliRunner().invoke(app, [*RENDER, "--", "nofile.py"])
    assert result.exit_code == 0
    assert f"note: the program 'nofile.py' is not there, seen from {folder}\n" in result.stderr
    assert "nofile.py' is" not in CliRunner().invoke(app, [*RENDER, "--", "ok.py"]).stderr
