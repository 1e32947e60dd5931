"""The page of one result of every kind, made once for all tests."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

HOSTILE = "<script>console.error('host')</script><img src=x onerror=console.error(1)>$x_$"

MODEL = {
    "format": "mpistrat-model-1",
    "title": "Step time, projected",
    "statements": ["The ring breaks first."],
    "series": [
        {"name": "measured", "x": [1, 2], "y": [0.1, 0.11], "measured": True},
        {"name": "ring", "x": [1, 1024], "y": [0.1, 2], "low": [0.1, 1], "high": [1, 3]},
    ],
    "validation": [{"what": "4 hosts", "predicted": 0.12, "measured": 0.1, "error": 0.2}],
}


@dataclass(frozen=True)
class Made:
    """A report: its page, the folder of its PNG files, its results, and what was printed."""

    page: Path
    pngs: Path
    source: Path
    output: str

    @property
    def text(self) -> str:
        return self.page.read_text(encoding="utf-8")


def run(*arguments):
    """Run the command in this process."""
    import typer
    from typer.testing import CliRunner

    from mpistrat.bench.report import command

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command.command)
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


@pytest.fixture(scope="session")
def report():
    """Return a function that runs the command."""
    for name in ("matplotlib", "pydantic", "typer", "jinja2"):
        pytest.importorskip(name)
    return run


@pytest.fixture(scope="session")
def made(report, tmp_path_factory):
    """Return a report that has a figure and a table of each kind."""
    from helpers.bench.results import every_kind
    from mpistrat.bench.results.file import append_point

    folder = tmp_path_factory.mktemp("made")
    for one in every_kind(HOSTILE):
        append_point(folder / "results.jsonl", one)
    (folder / "model.json").write_text(json.dumps(MODEL))
    page, pngs = folder / "report.html", folder / "png"
    options = ["-o", page, "--png", pngs, "--model", folder / "model.json"]
    said = report(folder / "results.jsonl", *options)
    assert said.exit_code == 0, said.output
    return Made(page, pngs, folder / "results.jsonl", said.output)
