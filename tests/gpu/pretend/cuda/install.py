"""Build CuPy's CUDA branch from its sources, against the pretended CUDA runtime (README.md).

``python tests/gpu/pretend/cuda/install.py`` makes an environment with it in mpistrat's cache
folder, for the Python that runs it, and prints the environment's folder. NVIDIA's wheels are
needed meanwhile, for nvcc and headers: 2.6 GB, removed at the end. Needs g++, a network, and
Python 3.11 or later.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from gpu.pretend.build import cache
from gpu.pretend.cuda.libraries import build_libraries

__all__ = ["environment_of", "headers_of", "installed", "why_not"]

CUPY = "14.2.0"
CUDA = "13"
REPOSITORY = Path(__file__).parents[4]
COMMAND = f"python {Path(__file__).relative_to(REPOSITORY)}"
TIMEOUT_S = 3 * 3600  # of a step; all of them take 6 minutes where nothing else runs

BUILD_TOOLS = ("setuptools>=77", "wheel", "Cython>=3.2,<3.3", "numpy>=2")
TOOLKIT = (
    *("cuda-runtime", "cuda-nvcc", "cuda-crt", "cuda-nvrtc", "cuda-cccl", "cuda-profiler-api"),
    *("nvvm", "nvtx", "cublas", "cufft", "curand", "cusparse", "cusolver", "nvjitlink"),
)
# Libraries that CuPy's modules are linked with: only those that a module uses are asked for when
# it is loaded.
NVIDIAS = ("cublas", "cufft", "curand", "cusparse", "cusolver")


def installed() -> Path:
    """Return the folder that holds what this program makes: its name has the versions."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return cache() / f"cupy-{CUPY}-cuda{CUDA}-{python}"


def environment_of(folder: Path) -> Path:
    """Return the virtual environment that has CuPy."""
    return folder / "environment"


def headers_of(folder: Path) -> Path:
    """Return the folder with those of NVIDIA's headers that our libraries are built with."""
    return folder / "include"


def why_not() -> str | None:
    """Return why CuPy's CUDA branch cannot be used here, and what to do, or None."""
    if installed().is_dir():
        return None
    return f"CuPy's CUDA branch is not built; {COMMAND} does that"


def install() -> Path:
    """Build everything unless it is there; return `installed`.

    Raises
    ------
    subprocess.CalledProcessError
        A step failed; its messages have been printed.
    """
    target = installed()
    if target.is_dir():
        return target
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache()) as name:
        work, made = Path(name), Path(name, "made")
        made.mkdir()
        tools = _environment(work / "tools", [*BUILD_TOOLS, *_wheels()])
        nvidia = next((work / "tools").glob("lib/python*/site-packages/nvidia"))
        _copy_headers(nvidia / f"cu{CUDA}" / "include", headers_of(made))
        libraries = build_libraries(headers_of(made))
        toolkit = _toolkit(work / "toolkit", nvidia, libraries)
        wheel = _build(_sources(work, tools), tools, toolkit, nvidia)
        # An environment cannot be moved: it is made where it stays, and is removed if that fails.
        made.rename(target)
        try:
            _environment(environment_of(target), [str(wheel), *_needs_of_tests()])
        except BaseException:
            shutil.rmtree(target)
            raise
    return target


def _wheels() -> list[str]:
    return [*(f"nvidia-{name}" for name in TOOLKIT), f"nvidia-nccl-cu{CUDA}"]


def _needs_of_tests() -> list[str]:
    """Return what mpistrat and its tests need; mpistrat itself is taken from the checkout."""
    import tomllib  # since Python 3.11

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *extras["mpich"], *extras["conformance"], "ml_dtypes"]


def _environment(folder: Path, packages: list[str]) -> Path:
    """Make a virtual environment; return its interpreter."""
    _run([sys.executable, "-m", "venv", folder])
    python = folder / "bin" / "python"
    _run([python, "-m", "pip", "install", "-q", *packages])
    return python


def _copy_headers(source: Path, target: Path) -> None:
    shutil.copytree(source / "crt", target / "crt")
    for header in source.glob("*.h"):
        shutil.copy(header, target)


def _toolkit(folder: Path, nvidia: Path, libraries: Path) -> Path:
    """Make a folder that looks like an installed CUDA, with our libraries in it."""
    cuda, lib = nvidia / f"cu{CUDA}", folder / "lib64"
    lib.mkdir(parents=True)
    for name in ("bin", "include", "nvvm"):
        (folder / name).symlink_to(cuda / name)
    # CuPy links the runtime as an archive: this one names our library, which stays dynamic.
    (lib / "libcudart_static.a").write_text(f"INPUT({libraries / 'libcudart.so.13'})\n")
    (lib / "libcudart.so").symlink_to(libraries / "libcudart.so.13")
    for ours in ("libcuda.so.1", "libnvrtc.so.13", "libnccl.so.2"):
        (lib / f"{ours.split('.')[0]}.so").symlink_to(libraries / ours)
    for name in NVIDIAS:
        (lib / f"lib{name}.so").symlink_to(next((cuda / "lib").glob(f"lib{name}.so.*")))
    return folder


def _sources(work: Path, python: Path) -> Path:
    """Download CuPy's sources; return their folder."""
    # Without the variable its setup looks for CUDA before it tells its version.
    given = {**os.environ, "CUPY_INSTALL_USE_STUB": "1"}
    options = ["--no-deps", "--no-build-isolation", "--no-binary", "cupy", "-d", work]
    _run([python, "-m", "pip", "download", "-q", *options, f"cupy=={CUPY}"], env=given)
    with tarfile.open(work / f"cupy-{CUPY}.tar.gz") as archive:
        archive.extractall(work, filter="data")
    return work / f"cupy-{CUPY}"


def _build(sources: Path, python: Path, toolkit: Path, nvidia: Path) -> Path:
    """Return a wheel of CuPy, whose modules ask for our libraries by name.

    Nothing is optimized: speed is not what this is for, and the kernels of CUB and Thrust, which
    nvcc compiles, cannot run here.
    """
    cores = str(len(os.sched_getaffinity(0)))
    given = {
        **os.environ,
        "CUDA_PATH": str(toolkit),
        "PATH": os.pathsep.join([str(toolkit / "bin"), str(python.parent), os.environ["PATH"]]),
        "CPATH": str(nvidia / "nccl" / "include"),
        "CUPY_INCLUDE_PATH": str(nvidia / "nccl" / "include"),
        "CUPY_INSTALL_NO_RPATH": "1",
        "CUPY_NUM_BUILD_JOBS": cores,
        "CUPY_NUM_NVCC_THREADS": "1",
        "CUPY_NVCC_GENERATE_CODE": "arch=compute_90,code=compute_90",
        "NVCC_APPEND_FLAGS": "-Xcicc -O0 -Xcompiler -O0",
        "CFLAGS": "-O0 -g0",
        "CXXFLAGS": "-O0 -g0",
        "LDFLAGS": "-Wl,--as-needed",
    }
    options = ["-q", "--no-build-isolation", "--no-deps", "-w", sources.parent]
    _run([python, "-m", "pip", "wheel", *options, sources], env=given)
    (wheel,) = sources.parent.glob("cupy-*.whl")
    return wheel


def _run(command: list[str | Path], env: dict[str, str] | None = None) -> None:
    # What it says goes to stderr: stdout is for the answer.
    subprocess.run(command, env=env, stdout=sys.stderr, check=True, timeout=TIMEOUT_S)


if __name__ == "__main__":
    print(environment_of(install()))
