"""The command ``mpistrat``, without MPI."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import mpistrat
from mpistrat.bench.__main__ import CASES

pytest.importorskip("typer")

ROOT = Path(mpistrat.__file__).parents[1]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )


def module(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "mpistrat", *arguments)


def test_the_benchmarks_are_part_of_it() -> None:
    said = module("bench", "--help")
    assert said.returncode == 0, said.stderr
    assert "mpistrat bench" in said.stdout
    assert [name for name in CASES if f" {name} " not in said.stdout] == []


@pytest.mark.parametrize("arguments", [["bench", "nonsense"], ["nonsense"]])
def test_an_unknown_tool_is_named(arguments: list[str]) -> None:
    said = module(*arguments)
    assert said.returncode == 2
    assert "No such command 'nonsense'" in said.stderr


def test_what_is_missing_is_said() -> None:
    code = (
        "import sys; sys.modules['typer'] = None\n"
        "from mpistrat.cli.main import main\n"
        "import importlib.util as util; found = util.find_spec\n"
        "util.find_spec = lambda name: None if name == 'typer' else found(name)\n"
        "main()"
    )
    said = run(sys.executable, "-c", code)
    assert said.returncode == 2
    assert "needs typer, not installed here; run: pip install" in said.stderr


def test_it_is_installed_under_its_name() -> None:
    try:
        importlib.metadata.distribution("mpistrat")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("mpistrat is not installed: this is a source tree on PYTHONPATH")
    said = run(str(Path(sys.executable).parent / "mpistrat"), "--version")
    assert (said.returncode, said.stdout) == (0, f"mpistrat {mpistrat.__version__}\n")
