"""Find TensorFlow and its headers, without importing it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from mpistrat.errors import BackendUnavailableError

__all__ = ["TensorFlow", "find_tensorflow"]

_INSTALL = 'pip install "mpistrat[tensorflow]", or tensorflow-cpu==2.21.* where no GPU is'
_RELEASE = "2.21"
# What only Horovod's XLA source includes, by a path of older releases.
_BUILDER = Path("xla/hlo/builder/xla_builder.h")


@dataclass(frozen=True)
class TensorFlow:
    """An installed TensorFlow.

    Attributes
    ----------
    distribution
        The package that brought it, such as ``tensorflow-cpu``.
    version
        Its version, such as ``2.21.0``.
    include
        The folder of its headers.
    cuda
        The release of CUDA that it was built with, "" if unknown; None for one without GPUs.
    """

    distribution: str
    version: str
    include: Path
    cuda: str | None

    def __str__(self) -> str:
        """Return the line of the report."""
        return f"{self.distribution} {self.version} ({self.include.parent})"


def find_tensorflow() -> TensorFlow:
    """Return the TensorFlow of this Python. **Local.**

    Raises
    ------
    BackendUnavailableError
        There is none, it is of another release, or its headers are missing.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        raise BackendUnavailableError(f"there is no TensorFlow in this environment; {_INSTALL}")
    folder = Path(spec.submodule_search_locations[0])
    name, version = _distribution()
    if not f"{version}.".startswith(f"{_RELEASE}."):
        raise BackendUnavailableError(
            f"TensorFlow is {version or 'of an unknown version'}, but mpistrat needs {_RELEASE},"
            f" and Horovod's sources are adapted to its headers; {_INSTALL}"
        )
    include = folder / "include"
    if not (include / _BUILDER).is_file():
        raise BackendUnavailableError(
            f"TensorFlow is here without its headers: there is no {include / _BUILDER}; install"
            f" it from PyPI: {_INSTALL}"
        )
    return TensorFlow(name, version, include, _cuda(folder))


def _distribution() -> tuple[str, str]:
    """Return the name and the version of the package that holds ``tensorflow``."""
    names = importlib.metadata.packages_distributions().get("tensorflow", [])
    name = next((name for name in names if name.replace("_", "-").startswith("tensorflow")), "")
    if not name:
        return "tensorflow", ""
    return name.replace("_", "-"), importlib.metadata.version(name)


def _cuda(folder: Path) -> str | None:
    # Read, not imported: the import takes seconds and prints what it finds.
    file = folder / "python" / "platform" / "build_info.py"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    if not re.search(r"'is_cuda_build'\W+True", text):
        return None
    release = re.search(r"'cuda_version'\W+([\d.]+)", text)
    return release[1] if release else ""
