"""Add wheels that were brought along to this Python's packages, on a machine without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_INSTALL_S = 120


def add(wheels: Path, folder: Path) -> Path:
    """Return the Python of an environment that has these wheels, and what this Python has.

    Raises
    ------
    SystemExit
        There are no wheels in that folder, or they cannot be installed.
    """
    files = sorted(wheels.glob("*.whl"))
    if not files:
        raise SystemExit(f"gpu-check: no *.whl in {wheels}")
    place = folder / "environment"
    _run([sys.executable, "-m", "venv", "--without-pip", str(place)])
    python = place / "bin" / "python"
    install = ["install", "-q", "--no-index", "--no-deps", *map(str, files)]
    _run([sys.executable, "-m", "pip", "--python", str(python), *install])
    [packages] = place.glob("lib/python*/site-packages")
    # After its own: this Python may itself be that of an environment, which venv does not follow.
    theirs = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "rest.pth").write_text("\n".join(theirs) + "\n", encoding="utf-8")
    return python


def variables(python: Path) -> dict[str, str]:
    """Return variables by which that environment finds this one's MPI, unless it has its own."""
    if any((python.parents[1] / "lib").glob("libmpi*")):
        return {}
    here = Path(sys.prefix)
    found = {"PATH": _with(os.environ.get("PATH"), here / "bin")}
    if any((here / "lib").glob("libmpi*")):
        found["LD_LIBRARY_PATH"] = _with(os.environ.get("LD_LIBRARY_PATH"), here / "lib")
    return found


def _with(paths: str | None, last: Path) -> str:
    return os.pathsep.join(filter(None, [paths, str(last)]))


def _run(command: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_INSTALL_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"gpu-check: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
