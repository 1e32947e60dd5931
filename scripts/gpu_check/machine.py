"""Find out what this machine has, and what is missing with which effect."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

ASK_S = 60  # the first CuPy program of a machine loads its libraries from a cold disk

PACKAGES = {
    "numpy": "nothing runs",
    "cupy": "nothing runs",
    "ml_dtypes": "nothing runs",
    "pytest": "no tests",
    "hypothesis": "no tests",
    "mpi4py": "no jobs of several ranks",
    "typer": "no benchmarks",
    "rich": "no benchmarks",
    "pydantic": "no benchmarks, and tests of the doctor fail",
    "tomlkit": "tests of the doctor fail",
    "optree": "tests of strategies with nested values fail",
    "cloudpickle": "tests of coordinators fail",
    "safetensors": "tests of checkpoints fail",
    "nanobind": "no kernels for the host: ranks meet by MPI alone, and staging is slower",
    "setuptools": "no kernels for the host: ranks meet by MPI alone, and staging is slower",
    "pytest-xdist": "tests run one after the other",
    "torch": "not compared with",
}

_MODULES = {"pytest-xdist": "xdist"}

_GPU_PROGRAM = """
import json, cupy
runtime = cupy.cuda.runtime
properties = runtime.getDeviceProperties(0)
facts = {
    "cupy": cupy.__version__, "is_hip": bool(runtime.is_hip), "gpu": properties["name"].decode(),
    "gpus": runtime.getDeviceCount(), "memory_bytes": int(properties["totalGlobalMem"]),
    "runtime_api": runtime.runtimeGetVersion(), "driver_api": runtime.driverGetVersion(),
}
try:
    from cupy.cuda import nccl
    facts["nccl"] = nccl.get_version()
except (ImportError, AttributeError):
    facts["nccl"] = None
print("facts", json.dumps(facts))
"""
_MPI_PROGRAM = """
import json
from mpi4py import MPI
version = MPI.Get_library_version().splitlines()[0].strip("\\0")
print("facts", json.dumps({"library": version}))
"""
_LAUNCHER_PROGRAM = """
import json
from mpistrat.testing.launcher import find_launcher
found = find_launcher()
print("facts", json.dumps({"launcher": str(found.path), "kind": found.kind}))
"""


def look(environment: dict[str, str]) -> dict[str, Any]:
    """Return what is there; values of what is missing are None, or hold an ``error``."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "is_root": os.geteuid() == 0,
        "nvidia_smi": _nvidia_smi(),
        "gpu": ask(_GPU_PROGRAM, environment),
        "mpi": ask(_MPI_PROGRAM, environment),
        "launcher": ask(_LAUNCHER_PROGRAM, environment),
        "packages": {name: _version(name) for name in PACKAGES},
        "nvcc": _nvcc(),
        "compiler": compiler(),
        "compute_sanitizer": sanitizer(),
    }


def missing(machine: dict[str, Any]) -> list[str]:
    """Return a line for each thing that is missing, with its effect."""
    lines = [
        f"{name}: not installed; {PACKAGES[name]}"
        for name, version in machine["packages"].items()
        if version is None
    ]
    effects = {
        "gpu": "nothing runs",
        "mpi": "no jobs of several ranks",
        "launcher": "no jobs of several ranks",
    }
    for name, effect in effects.items():
        if "error" in machine[name]:
            lines.append(f"{name}: {machine[name]['error']}; {effect}")
    if machine["nvidia_smi"] is None:
        lines.append("nvidia-smi: not there; the driver's version is not known")
    if machine["compute_sanitizer"] is None:
        lines.append(
            "compute-sanitizer: not in PATH, in CUDA_HOME, in /usr/local/cuda* or a wheel;"
            " accesses of kernels are not checked"
        )
    return lines


def can_run_ranks(machine: dict[str, Any]) -> str | None:
    """Return why no job of several ranks can be started, or None."""
    for name in ("mpi", "launcher"):
        if "error" in machine[name]:
            return f"{name}: {machine[name]['error']}"
    return None


def ask(program: str, environment: dict[str, str]) -> dict[str, Any]:
    """Run a program that prints facts; return them, or its last line as ``error``."""
    command = [sys.executable, "-c", program]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=ASK_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {ASK_S} s"}
    for line in done.stdout.splitlines():
        if line.startswith("facts "):
            facts: dict[str, Any] = json.loads(line.removeprefix("facts "))
            return facts
    said = [line.strip() for line in done.stderr.splitlines() if line.strip(" =")]
    return {"error": said[-1] if said else f"exit status {done.returncode}"}


def sanitizer() -> str | None:
    """Return where compute-sanitizer is: in PATH, a CUDA toolkit, or NVIDIA's wheel."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    toolkits = [*map(Path, homes), *_toolkits()]
    wheels = [Path(folder) / "nvidia" for folder in sys.path if Path(folder, "nvidia").is_dir()]
    places = [*(one / "bin" for one in toolkits), *_folders_of_wheels(wheels)]
    # Some toolkits have it in a folder of its own.
    places += [one / "compute-sanitizer" for one in toolkits]
    search = os.pathsep.join([os.environ.get("PATH", ""), *map(str, places)])
    return shutil.which("compute-sanitizer", path=search)


def _toolkits() -> list[Path]:
    return sorted(Path("/usr/local").glob("cuda*"))


def _folders_of_wheels(wheels: list[Path]) -> Iterator[Path]:
    for folder in wheels:
        yield from folder.glob("*/bin")
        yield from folder.glob("*/compute-sanitizer")


def compiler() -> str | None:
    """Return the C++ compiler that builds the kernels of the host, with Python's headers."""
    found = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("c++")
    has_headers = Path(sysconfig.get_paths()["include"], "Python.h").exists()
    return found if has_headers else None


def _version(name: str) -> str | None:
    if importlib.util.find_spec(_MODULES.get(name, name)) is None:
        return None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "there"  # CuPy's wheels have other names than the package


def _nvidia_smi() -> list[str] | None:
    query = "--query-gpu=name,driver_version,memory.total,memory.used,utilization.gpu"
    said = _output(["nvidia-smi", query, "--format=csv,noheader"])
    return said.splitlines() if said else None


def _nvcc() -> str | None:
    said = _output(["nvcc", "--version"])
    lines = [line for line in (said or "").splitlines() if "release" in line]
    return lines[0].strip() if lines else None


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
