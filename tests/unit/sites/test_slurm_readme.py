"""slurm/README.md: its commands run, its links lead somewhere, and it knows every strategy."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mpistrat.sites.command import app
from mpistrat.sites.lookup import find
from mpistrat.sites.rendering.options import Strategy

FOLDER = Path(__file__).parents[3] / "slurm"
TEXT = (FOLDER / "README.md").read_text()
COMMANDS = re.findall(r"^mpistrat slurm (render (?:.*\\\n)*.*)$", TEXT, re.MULTILINE)


def test_commands_were_found():
    assert len(COMMANDS) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_to_render(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command.replace("\\\n", " ").partition(" && ")[0])
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stderr
    assert Path("train.sh").read_text().startswith("#!/bin/bash")


def test_every_strategy_has_its_row_and_its_template():
    rows = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert rows == [strategy.value for strategy in Strategy]
    templates = {file.name for file in (FOLDER / "templates").glob("*.sh.j2")}
    assert {f"{name}.sh.j2" for name in rows} <= templates


@pytest.mark.parametrize("page", ["README.md", "SITES.md"])
def test_links(page):
    links = re.findall(r"\]\(([\w./-]+)[)#]", (FOLDER / page).read_text())
    assert links or page == "SITES.md"
    assert [link for link in links if not (FOLDER / link).exists()] == []


def test_sites_that_are_named_are_there():
    for name in set(re.findall(r"--site (\S+?)[`\s]", TEXT)):
        assert find(name).name == name


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 150
