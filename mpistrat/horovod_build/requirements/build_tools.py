"""Find pip, make and CMake."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from dataclasses import dataclass

from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build.requirements.asking import ask

__all__ = ["CMake", "find_cmake", "find_make", "find_pip"]

_OLDEST = (3, 18)


@dataclass(frozen=True)
class CMake:
    """A CMake that is new enough, or word of why PyPI's is to be taken.

    Attributes
    ----------
    program
        Its path; None: the build gets the package ``cmake`` of PyPI into a folder of its own.
    text
        The line of the report.
    """

    program: str | None
    text: str

    def __str__(self) -> str:
        """Return the line of the report."""
        return self.text


def find_cmake() -> CMake:
    """Return the CMake on the PATH if it is 3.18 or newer, else that of PyPI. **Local.**"""
    program = shutil.which("cmake")
    if program is None:
        return CMake(None, "none here: the build fetches PyPI's for itself")
    try:
        said = ask([program, "--version"], "")
    except BackendUnavailableError:
        # Such as the script of a package that was removed: PyPI's will do.
        return CMake(None, f"{program} does not work: the build fetches PyPI's for itself")
    version = re.search(r"version (\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < _OLDEST:
        first = said.partition("\n")[0]
        return CMake(None, f"{first} is too old: the build fetches PyPI's for itself")
    return CMake(program, f"{version[1]}.{version[2]} ({program})")


def find_make() -> str:
    """Return the path of make, which CMake runs the compiler by. **Local.**

    Raises
    ------
    BackendUnavailableError
        There is none.
    """
    program = shutil.which("make") or shutil.which("gmake")
    if program is None:
        raise BackendUnavailableError(
            "found no make on the PATH; install it (Debian: apt install make)"
        )
    return program


def find_pip() -> str:
    """Return the version text of pip. **Local.**

    Raises
    ------
    BackendUnavailableError
        This Python has none.
    """
    if importlib.util.find_spec("pip") is None:
        raise BackendUnavailableError(
            f"{sys.executable} has no pip, as environments of uv; run: uv pip install pip, or"
            f" {sys.executable} -m ensurepip"
        )
    advice = "repair the environment, or make a new one"
    return ask([sys.executable, "-m", "pip", "--version"], advice).strip()
