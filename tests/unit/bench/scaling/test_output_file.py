"""``bench scale --output``: files that results cannot be appended to are refused at the start."""

from pathlib import Path

import pytest

pytest.importorskip("typer")

import typer
from typer.testing import CliRunner

from helpers.bench.framed_text import unframed
from mpistrat.bench.results.file import append_point
from mpistrat.bench.results.point import Point, Setup
from mpistrat.bench.scaling.command import command


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def scale(output: Path | str, *options: str):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, ["quick", "--list", "--output", str(output), *options])


@pytest.mark.parametrize("option", ["--resume", "--retry"])
def test_a_file_of_something_else_is_left_as_it_is(option):
    notes = Path("notes.txt")
    notes.write_text("what I saw\n")
    said = scale(notes, option)
    assert said.exit_code == 2
    assert "notes.txt:1: 'what I saw' is no result" in unframed(said.output)
    assert "choose another --output" in unframed(said.output)
    assert notes.read_text() == "what I saw\n"


def test_a_folder_is_no_file_to_go_on_with():
    said = scale(".")
    assert said.exit_code == 2
    assert "it is a folder; expected a file" in unframed(said.output)
    assert "--resume" not in unframed(said.output).partition("Error")[2]


def test_a_file_of_results_is_gone_on_with():
    file = Path("results.jsonl")
    append_point(file, Point(setup=Setup(case="collectives", ranks=2, nodes=1)))
    assert scale(file, "--resume").exit_code == 0
