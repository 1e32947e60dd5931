"""Find NVIDIA's compiler and NCCL, for a Horovod that moves tensors between GPUs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build.requirements.asking import ask
from mpistrat.horovod_build.requirements.tensorflow import TensorFlow

__all__ = ["Cuda", "Nccl", "find_cuda", "find_nccl"]

_HOMES = ("HOROVOD_CUDA_HOME", "CUDA_HOME", "CUDA_PATH")
_NCCL_HOMES = ("HOROVOD_NCCL_HOME", "NCCL_HOME", "NCCL_ROOT")
_USUAL = "/usr/local/cuda"
_SYSTEM = ("/usr/local/cuda", "/usr/local", "/usr")
_LIBRARIES = ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")
_FOR_NVCC = (
    "install the CUDA toolkit that fits TensorFlow, load its module, or set CUDA_HOME to its"
    " folder"
)
_FOR_NCCL = (
    "pip install nvidia-nccl-cu12 (or Debian: apt install libnccl-dev), or set NCCL_HOME to the"
    " folder that has include/nccl.h"
)


@dataclass(frozen=True)
class Cuda:
    """A CUDA toolkit.

    Attributes
    ----------
    home
        Its folder.
    release
        The release that its compiler names.
    of_tensorflow
        The release that TensorFlow was built with, to compare.
    """

    home: Path
    release: str
    of_tensorflow: str

    def __str__(self) -> str:
        """Return the line of the report."""
        other = self.of_tensorflow or "an unknown release"
        return f"{self.release} ({self.home}); TensorFlow was built with {other}"


@dataclass(frozen=True)
class Nccl:
    """NCCL: the folder of its header, its shared library, and its version."""

    include: Path
    library: Path
    version: str

    def __str__(self) -> str:
        """Return the line of the report."""
        return f"{self.version} ({self.library})"


def find_cuda(tensorflow: TensorFlow) -> Cuda:
    """Return the CUDA toolkit of this machine. **Local.**

    Raises
    ------
    BackendUnavailableError
        There is no toolkit, or this TensorFlow was not built for GPUs.
    """
    if tensorflow.cuda is None:
        raise BackendUnavailableError(
            f"{tensorflow.distribution} {tensorflow.version} was not built for GPUs; pip uninstall"
            f' {tensorflow.distribution}, then pip install "tensorflow[and-cuda]==2.21.*"; or'
            " build without --cuda"
        )
    home = next((one for one in _toolkits() if _is_complete(one)), None)
    if home is None:
        raise BackendUnavailableError(
            f"found no folder with bin/nvcc and include/cuda_runtime.h; {_FOR_NVCC}"
        )
    said = ask([str(home / "bin" / "nvcc"), "--version"], _FOR_NVCC)
    release = re.search(r"release ([\d.]+)", said)
    return Cuda(home, release[1] if release else "of an unknown release", tensorflow.cuda)


def _toolkits() -> Iterator[Path]:
    """Yield the folders that may be a toolkit, the user's choice first."""
    yield from (Path(os.environ[name]) for name in _HOMES if os.environ.get(name))
    nvcc = shutil.which("nvcc")
    if nvcc is not None:  # also a link, or a script that starts another one
        yield from (Path(nvcc).parents[1], Path(nvcc).resolve().parents[1])
    yield Path(_USUAL)


def _is_complete(home: Path) -> bool:
    nvcc, header = home / "bin" / "nvcc", home / "include" / "cuda_runtime.h"
    return os.access(nvcc, os.X_OK) and header.is_file()


def find_nccl(cuda: Cuda) -> Nccl:
    """Return NCCL, of the environment's variables, its packages, or the system. **Local.**

    Raises
    ------
    BackendUnavailableError
        There is no header with a library beside it, or it is older than 2.0.
    """
    homes = [os.environ[name] for name in _NCCL_HOMES if os.environ.get(name)]
    for home in map(Path, [*homes, *_packages(), str(cuda.home), *_SYSTEM]):
        header, library = home / "include" / "nccl.h", _library(home)
        if header.is_file() and library is not None:
            version = _version(header)
            if int(version.partition(".")[0] or 0) < 2:
                raise BackendUnavailableError(f"{header} is of NCCL {version}; {_FOR_NCCL}")
            return Nccl(header.parent, library, version)
    raise BackendUnavailableError(f"found no NCCL with its header; {_FOR_NCCL}")


def _packages() -> list[str]:
    """Return the folder of the package ``nvidia-nccl-cu12``, whose name for Python is short."""
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec else None
    return [str(Path(place) / "nccl") for place in places or []]


def _library(home: Path) -> Path | None:
    found = (path for name in _LIBRARIES for path in sorted((home / name).glob("libnccl.so*")))
    return next(found, None)


def _version(header: Path) -> str:
    text = header.read_text(encoding="utf-8", errors="replace")
    parts = (re.search(rf"#define NCCL_{name}\s+(\d+)", text) for name in ("MAJOR", "MINOR"))
    return ".".join(part[1] for part in parts if part)
