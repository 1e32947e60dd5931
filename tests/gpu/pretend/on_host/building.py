"""Build kernels for the CPU by g++: see kernels_on_host.py."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

Mode = Literal["plain", "address", "thread"]

FOLDER = Path(__file__).parents[1]
COMPILER = "g++"
COMPILE_TIMEOUT_S = 300
FLAGS = ["-std=c++20", "-g", "-fPIC", "-ffp-contract=off"]
# -fno-gnu-unique and -Bsymbolic: variables of templates, __shared__ ones among them, are not to be
# one with those of another library of kernels.
KERNEL_FLAGS = ["-O1", "-Wall", "-Wno-unknown-pragmas", "-fno-gnu-unique", "-Wl,-Bsymbolic"]
SANITIZER = {
    "plain": [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}
# threads/ tells the sanitizers of its switches, and is not itself watched by them.
ANNOTATIONS = {"plain": [], "address": ["-DPRETEND_ASAN"], "thread": ["-DPRETEND_TSAN"]}
RUNTIMES = {"plain": [], "address": ["libasan.so", "libubsan.so"], "thread": ["libtsan.so"]}


def why_not() -> str | None:
    """Return why kernels cannot be built here, or None."""
    if shutil.which(COMPILER) is None:
        return f"{COMPILER} is not installed"
    return None


def build(
    sources: Sequence[Path], mode: Mode = "plain", flags: Sequence[str] = (), lanes: int = 64
) -> Path:
    """Compile kernels, together in one library; return its path.

    Built once for a content of all files in the sources' folders and these flags.

    Parameters
    ----------
    sources
        Files with ``extern "C" __global__`` functions; all of them become one translation unit.
    mode
        What watches over them.
    flags
        Further options of the compiler, as ``-DNAME=1`` or ``-Ifolder``.
    lanes
        Of a wavefront: 64 (AMD) or 32 (NVIDIA's warp).

    Raises
    ------
    RuntimeError
        They do not compile; it carries the compiler's messages.
    """
    threads = threads_library(mode, lanes)
    includes = [f"-I{folder}" for folder in dict.fromkeys(source.parent for source in sources)]
    flags = [
        *FLAGS,
        *KERNEL_FLAGS,
        *SANITIZER[mode],
        f"-DPRETEND_LANES={lanes}",
        *includes,
        *flags,
    ]
    inputs = [file for source in sources for file in sorted(source.parent.glob("*.cu*"))]
    name = f"kernels-{_digest([*_own_files(), *inputs], flags, *map(str, sources))}.so"
    with _Built(name) as target:
        if target is not None:
            _compile_kernels(sources, flags, threads, target)
    return _cache() / name


def environment(mode: Mode) -> dict[str, str]:
    """Return the environment for a process that launches kernels of this mode."""
    result = dict(os.environ)
    if mode == "plain":
        return result
    result["LD_PRELOAD"] = " ".join(_runtime(library) for library in RUNTIMES[mode])
    # Python leaks at its end; and numpy asks for huge arrays to see whether it gets them.
    result["ASAN_OPTIONS"] = "detect_leaks=0:allocator_may_return_null=1"
    result["UBSAN_OPTIONS"] = "print_stacktrace=1"
    # The end of an OS thread frees the memory of its __shared__ variables.
    suppressions = _cache() / "tsan-suppressions"
    suppressions.write_text("race:_dl_deallocate_tls\n")
    result["TSAN_OPTIONS"] = f"halt_on_error=1:suppressions={suppressions}"
    return result


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "mpistrat-pretended-gpu"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _own_files() -> list[Path]:
    folders = ("threads", "language", "on_host")
    return sorted(f for name in folders for f in (FOLDER / name).rglob("*") if f.is_file())


def _digest(files: Sequence[Path], flags: Sequence[str], *more: str) -> str:
    state = hashlib.sha256("\0".join([*flags, *more]).encode())
    for file in files:
        state.update(file.read_bytes())
    return state.hexdigest()[:20]


class _Built:
    """A file of the cache: give a path to make it at, or None if it is there."""

    def __init__(self, name: str) -> None:
        self._final = _cache() / name
        self._folder: str | None = None

    def __enter__(self) -> Path | None:
        if self._final.exists():
            return None
        self._folder = tempfile.mkdtemp(dir=_cache())
        return Path(self._folder) / self._final.name

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._folder is None:
            return
        if kind is None:  # another process may have made it too: the same bytes
            (Path(self._folder) / self._final.name).replace(self._final)
        shutil.rmtree(self._folder)


def threads_library(mode: Mode = "plain", lanes: int = 64) -> Path:
    """Build threads/ with the launch for ctypes; return its path."""
    flags = [*FLAGS, "-O2", *ANNOTATIONS[mode], f"-DPRETEND_LANES={lanes}", f"-I{FOLDER}"]
    sources = [*sorted((FOLDER / "threads").rglob("*.cc")), FOLDER / "on_host" / "launch.cc"]
    name = f"libthreads-{_digest([*_own_files(), sources[-1]], flags)}.so"
    with _Built(name) as target:
        if target is not None:
            shared = ["-shared", f"-Wl,-soname,{name}", "-pthread", "-o", str(target)]
            # As one unit: most of the time goes into headers that all of them have.
            unit = "".join(f'#include "{source}"\n' for source in sources)
            _call([COMPILER, *flags, *shared, "-x", "c++", "-"], unit)
    return _cache() / name


def _compile_kernels(
    sources: Sequence[Path], flags: Sequence[str], threads: Path, target: Path
) -> None:
    language = [f"-I{FOLDER}", f"-I{FOLDER / 'language'}", "-include", "language/prelude.h"]
    unit = target.with_suffix(".cc")
    unit.write_text("".join(f'#include "{source.resolve()}"\n' for source in sources))
    text = _call([COMPILER, "-E", "-DPRETEND_MARKS", *flags, *language, str(unit)])
    unit = target.with_suffix(".ii")
    unit.write_text(_call([str(_marker())], text))
    link = ["-shared", str(threads), f"-Wl,-rpath,{threads.parent}", "-o", str(target)]
    _call([COMPILER, *flags, str(unit), *link])


def _marker() -> Path:
    """Return the program that gives each kernel of a preprocessed source an entry."""
    sources = [FOLDER / "on_host" / "mark_kernels.cc", FOLDER / "compiler" / "kernels_in_text.cc"]
    header = FOLDER / "compiler" / "kernels_in_text.h"
    flags = [*FLAGS, "-O1", f"-I{FOLDER}"]
    name = f"mark-kernels-{_digest([*sources, header], flags)}"
    with _Built(name) as target:
        if target is not None:
            _call([COMPILER, *flags, *map(str, sources), "-o", str(target)])
    return _cache() / name


def _call(command: Sequence[str], given: str = "") -> str:
    done = subprocess.run(
        command,
        input=given,
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        message = f"{command[0]} refused it:\n{done.stderr}"
        raise RuntimeError(message)
    return done.stdout


def _runtime(library: str) -> str:
    found = _call([COMPILER, f"-print-file-name={library}"]).strip()
    if not Path(found).is_absolute():
        message = f"{COMPILER} has no {library}"
        raise RuntimeError(message)
    # A linker script names the library in some distributions; the file itself is beside it.
    return str(Path(found).resolve())
