"""Build the libraries that stand in for a GPU's, once for a content of their sources.

``python tests/gpu/pretend/build.py`` prints the folder that has them, in mpistrat's cache folder.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
COMPILER = os.environ.get("CXX", "g++")
TIMEOUT_S = 300
PROGRAM = "pretend-device"  # of a device; all other parts are libraries
KEPT, KEPT_S = 4, 24 * 3600  # builds of other sources, and the time since they were used
FLAGS = ["-std=c++20", "-O1", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror"]


class Part(NamedTuple):
    """A library or a program.

    Attributes
    ----------
    sources
        Patterns of its files, below this folder.
    script
        Names the symbols that a library exports, and their versions; a program has none.
    needs
        A library of ours that it is linked to.
    apart
        Patterns of those of its files that cannot be compiled together with others.
    """

    sources: tuple[str, ...]
    script: str | None = None
    needs: str | None = None
    apart: tuple[str, ...] = ()


PARTS = {
    "libamdhip64.so.7": Part(
        ("runtime/**/*.cc", "device/messages.cc"), "runtime/interface/amdhip64.map"
    ),
    "libhiprtc.so.7": Part(("compiler/*.cc",), "compiler/hiprtc.map"),
    "librccl.so.1": Part(
        ("nccl/**/*.cc",), "nccl/interface/exports.map", needs="libamdhip64.so.7"
    ),
    "libhipblas.so.3": Part(("blas/*.cc",), "blas/exports.map", needs="libamdhip64.so.7"),
    "pretend-blas.so": Part(("blas/kernels/*.cc",)),  # the kernels that it loads
    "libroctracer64.so.4": Part(("tracing/*.cc",), "tracing/roctracer.map"),
    # CuPy's modules need this one by name, and use nothing of it.
    "librocfft.so.0": Part(()),
    PROGRAM: Part(("device/*.cc", "threads/**/*.cc")),
}


def why_not() -> str | None:
    """Return why nothing can be built here, or None."""
    return None if shutil.which(COMPILER) else f"{COMPILER} is not installed"


def build(parts: dict[str, Part] | None = None, flags: Sequence[str] = ()) -> Path:
    """Build all parts unless they are there; return the folder that has them.

    Parameters
    ----------
    parts
        Default: those for CuPy's ROCm wheel.
    flags
        Of the compiler, besides FLAGS.

    Raises
    ------
    RuntimeError
        A source does not compile; it carries the compiler's messages.
    """
    base = cache()
    target = base / f"pretended-gpu-{_digest(flags)}"
    base.mkdir(parents=True, exist_ok=True)
    with _alone(base / "pretended-gpu.lock"):
        if target.is_dir():
            os.utime(target)
        else:
            folder = Path(tempfile.mkdtemp(dir=base))
            try:
                _build_all(PARTS if parts is None else parts, folder, flags)
                folder.rename(target)  # whole or not at all
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            _remove_old(base)
    return target


def _remove_old(folder: Path) -> None:
    """Remove builds that nobody has asked for lately; the newest stay."""
    builds = sorted(folder.glob("pretended-gpu-*"), key=lambda one: one.stat().st_mtime)
    for one in builds[:-KEPT]:
        if time.time() - one.stat().st_mtime > KEPT_S:
            shutil.rmtree(one, ignore_errors=True)


def cache() -> Path:
    """Return the folder for what is built and kept: mpistrat's cache folder."""
    named = os.environ.get("MPISTRAT_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(named) if named else Path(base) / "mpistrat").absolute()


def _digest(flags: Sequence[str]) -> str:
    state = hashlib.sha256(" ".join([COMPILER, *FLAGS, *flags, str(FOLDER)]).encode())
    for file in sorted(FOLDER.rglob("*")):
        if file.suffix in (".cc", ".h", ".map") or file.name == "build.py":
            state.update(file.read_bytes())
    return state.hexdigest()[:20]


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Let one process at a time build; the lock ends with it."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_all(parts: dict[str, Part], folder: Path, flags: Sequence[str]) -> None:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda name: _compile(name, parts[name], folder, flags), parts))
    for name, part in parts.items():
        _link(name, part, folder)
    for one in [*folder.glob("*.o"), *folder.glob("*.cc")]:
        one.unlink()


def _compile(name: str, part: Part, folder: Path, flags: Sequence[str]) -> None:
    """Compile most sources of a part as one: most of their time goes into the same headers."""
    # A program's symbols are for the kernels that it loads; a library's script names what it has.
    hidden = [] if name == PROGRAM else ["-fvisibility=hidden"]
    where = [f"-I{FOLDER}", f'-DPRETEND_SOURCES="{FOLDER}"']
    for number, sources in enumerate(
        [_files(part.sources), *([one] for one in _files(part.apart))]
    ):
        unit = folder / f"{name}.{number}.cc"
        unit.write_text("".join(f'#include "{source}"\n' for source in sources))
        target = ["-c", str(unit), "-o", str(unit.with_suffix(".o"))]
        _run([COMPILER, *FLAGS, *flags, *hidden, *where, *target])


def _files(patterns: Sequence[str]) -> list[Path]:
    return [file for pattern in patterns for file in sorted(FOLDER.glob(pattern))]


def _link(name: str, part: Part, folder: Path) -> None:
    if name == PROGRAM:
        kind = ["-rdynamic"]
    else:
        kind = ["-shared", f"-Wl,-soname,{name}", "-Wl,-z,defs"]
        if part.script:
            kind.append(f"-Wl,--version-script={FOLDER / part.script}")
    libraries = [str(folder / part.needs), "-Wl,-rpath,$ORIGIN"] if part.needs else []
    last = ["-ldl", "-pthread", "-lrt"]
    objects = map(str, folder.glob(f"{name}.*.o"))
    _run([COMPILER, *objects, *kind, *libraries, *last, "-o", str(folder / name)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")


if __name__ == "__main__":
    print(build())
