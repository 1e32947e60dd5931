"""The command ``mpistrat``, without MPI."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mpistrat
from mpistrat.bench.__main__ import CASES
from mpistrat.cli.main import main
from mpistrat.testing.sets import takes_long

pytest.importorskip("typer")

ROOT = Path(mpistrat.__file__).parents[1]
COLORS = {"FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in COLORS}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env=env | {"COLUMNS": "80", "TERM": "dumb"},
    )


@takes_long()
def test_the_benchmarks_are_part_of_it() -> None:
    said = run("-m", "mpistrat", "bench", "--help")
    assert said.returncode == 0, said.stderr
    assert "mpistrat bench" in said.stdout
    first_words = {line.strip("│ ").partition(" ")[0] for line in said.stdout.splitlines()}
    assert first_words >= CASES.keys()


@takes_long()
def test_it_says_which_version_it_is() -> None:
    said = run("-m", "mpistrat", "--version")
    assert (said.returncode, said.stdout) == (0, f"mpistrat {mpistrat.__version__}\n")


@pytest.mark.parametrize("arguments", [["doctor", "--lint", __file__], ["slurm", "sites"]])
def test_output_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        said = subprocess.run(
            [sys.executable, "-m", "mpistrat", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            cwd=ROOT,
        )
    assert said.returncode == 2
    (line,) = said.stderr.splitlines()
    assert line.endswith("cannot write: [Errno 28] No space left on device")


@takes_long()
@pytest.mark.parametrize("arguments", [["bench", "nonsense"], ["nonsense"]])
def test_an_unknown_tool_is_named(arguments: list[str]) -> None:
    said = run("-m", "mpistrat", *arguments)
    assert said.returncode == 2
    assert "No such command 'nonsense'" in said.stderr


@pytest.mark.parametrize(
    ("module", "program"), [("mpistrat.cli.main", "cli"), ("mpistrat.bench.__main__", "bench")]
)
def test_what_is_missing_is_said(module: str, program: str) -> None:
    code = f"import sys; sys.modules['typer'] = None; from {module} import main; main()"
    said = run("-c", code)
    assert said.returncode == 2
    assert "needs typer, not installed here; run: pip install" in said.stderr
    assert f"mpistrat[{program}]" in said.stderr


def test_the_modules_of_job_scripts_are_missed_too() -> None:
    code = "import sys; sys.modules['jinja2'] = None; from mpistrat.cli.main import main; main()"
    said = run("-c", code)
    assert said.returncode == 2
    assert "mpistrat needs jinja2, not installed here; run: pip install" in said.stderr


def test_it_is_installed_under_its_name() -> None:
    try:
        importlib.metadata.distribution("mpistrat")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("mpistrat is not installed: this is a source tree on PYTHONPATH")
    found = importlib.metadata.entry_points(group="console_scripts", name="mpistrat")
    assert found, "installed before there was a command; run pip install -e . again"
    assert {script.load() for script in found} == {main}
