"""Wheels that were brought along are added to what an environment has, without a network."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gpu_check import wheels
from mpistrat.testing.sets import takes_long


def make_wheel(folder: Path) -> None:
    """Write a wheel of one module."""
    info = "brought_along-1.0.dist-info"
    contents = {
        "brought_along.py": "WHERE = __file__\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: brought-along\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "".join(
            f"{name},,\n" for name in ("brought_along.py", f"{info}/METADATA", f"{info}/WHEEL")
        ),
    }
    with zipfile.ZipFile(folder / "brought_along-1.0-py3-none-any.whl", "w") as file:
        for name, text in contents.items():
            file.writestr(name, text)


@takes_long()
@pytest.mark.deadline(120)
def test_a_python_with_both(tmp_path: Path) -> None:
    make_wheel(tmp_path)
    python = wheels.add(tmp_path, tmp_path / "new")
    program = "import brought_along, numpy; print(brought_along.WHERE)"
    done = subprocess.run(
        [str(python), "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "new"))


def test_an_mpi_is_the_one_that_was_brought_along_or_this_environments(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/lib")
    here, new = tmp_path / "here", tmp_path / "new"
    for place in (here, new):
        (place / "lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(here))
    python = new / "bin" / "python"
    assert wheels.variables(python) == {"PATH": f"/bin:{here}/bin"}
    (here / "lib" / "libmpi.so.12").touch()
    assert wheels.variables(python)["LD_LIBRARY_PATH"] == f"/lib:{here}/lib"
    (new / "lib" / "libmpi.so.40").touch()
    assert wheels.variables(python) == {}


def test_a_folder_without_wheels_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no \*\.whl in "):
        wheels.add(tmp_path, tmp_path / "new")
