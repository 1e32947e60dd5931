"""Check that our libraries have all that an installed CuPy asks for.

``python tests/gpu/pretend/check.py``, with the interpreter of the environment that has
cupy-rocm-7-0. Every symbol that its modules leave undefined has to be exported by ours, with its
version; every library that they need has to be ours, the system's, or one that CuPy loads only
when it is used. The exit code says whether that holds, so a new CuPy fails here by name.
"""

import sys
import sysconfig
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from gpu.pretend.build import PARTS
from gpu.pretend.build import build as build_libraries
from gpu.pretend.elf import Dynamic, Symbol, dynamic

SYSTEM = (
    *("libc.", "libm.", "libdl.", "librt.", "libpthread.", "libgcc_s.", "libstdc++.", "ld-linux"),
)


class Build(NamedTuple):
    """One of CuPy's builds: which of its symbols our libraries have to export.

    Attributes
    ----------
    prefixes
        Of symbols, with the library that has them; the first one that fits counts.
    others
        Prefixes of symbols that are in libraries that are not ours.
    lazy
        Libraries that CuPy imports when they are used (matrix products, fft, random): not here,
        so that those raise ImportError.
    libraries
        Ours.
    package
        What has to be installed.
    """

    prefixes: dict[str, str]
    others: tuple[str, ...]
    lazy: tuple[str, ...]
    libraries: frozenset[str]
    package: str


ROCM = Build(
    {
        "hiprtc": "libhiprtc.so.7",
        "nccl": "librccl.so.1",
        "roctracer": "libroctracer64.so.4",
        "hipblas": "libhipblas.so.3",
        "__hip": "libamdhip64.so.7",
        "hip": "libamdhip64.so.7",
    },
    ("hipfft", "hiprand", "hipsparse"),
    (
        *("libhipfft", "libhiprand", "libhipsparse", "librocsolver", "librocblas"),
        "libroctx64",
    ),
    frozenset(PARTS),
    "cupy-rocm-7-0",
)


def wanted(modules: dict[str, Dynamic], build: Build = ROCM) -> dict[str, set[Symbol]]:
    """Return the symbols that the modules ask of each of our libraries."""
    found: dict[str, set[Symbol]] = defaultdict(set)
    for module in modules.values():
        for symbol in module.undefined:
            library = _library(symbol.name, build)
            if library:
                found[library].add(symbol)
    return found


def _library(name: str, build: Build) -> str | None:
    if name.startswith(build.others):
        return None
    return next(
        (found for prefix, found in build.prefixes.items() if name.startswith(prefix)), None
    )


def modules_in(site: Path) -> dict[str, Dynamic]:
    """Return what the linker sees of the compiled modules of CuPy in a folder of packages."""
    return {str(path): dynamic(path) for path in sorted(site.glob("cupy*/**/*.so"))}


def complaints(modules: dict[str, Dynamic], folder: Path, build: Build = ROCM) -> list[str]:
    """Return what is lacking in the libraries of a folder, in words."""
    if not modules:
        return [f"no compiled module of CuPy is installed here; install {build.package}"]
    found = []
    for library, symbols in sorted(wanted(modules, build).items()):
        ours = set(dynamic(folder / library).defined)
        found += [
            f"{library} lacks {symbol.name}, version {symbol.version or 'none'}"
            for symbol in sorted(symbols - ours)
        ]
    needed = {name for module in modules.values() for name in module.needed}
    known = SYSTEM + build.lazy
    foreign = [name for name in needed - build.libraries if not name.startswith(known)]
    return found + [f"a module needs {name}, which is not known here" for name in sorted(foreign)]


def report(site: Path, folder: Path, build: Build = ROCM) -> int:
    """Print what is lacking for the CuPy in a folder of packages; return 1 if anything is."""
    modules = modules_in(site)
    found = complaints(modules, folder, build)
    for line in found:
        print(line)
    if not found:
        counts = {name: len(symbols) for name, symbols in sorted(wanted(modules, build).items())}
        print(f"all symbols of {len(modules)} modules are there: {counts}")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(report(Path(sysconfig.get_path("platlib")), build_libraries()))
