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

sys.path.insert(0, str(Path(__file__).parents[2]))

from gpu.pretend.build import PARTS, build
from gpu.pretend.elf import Dynamic, Symbol, dynamic

# Libraries that CuPy imports when they are used (fft, random, solvers): not here, so that those
# raise ImportError.
LAZY = (*("libhipfft", "libhiprand", "libhipsparse", "librocsolver", "librocblas", "libroctx64"),)
SYSTEM = (
    *("libc.", "libm.", "libdl.", "librt.", "libpthread.", "libgcc_s.", "libstdc++.", "ld-linux"),
)
PREFIXES = {
    "hiprtc": "libhiprtc.so.7",
    "nccl": "librccl.so.1",
    "roctracer": "libroctracer64.so.4",
    "hipblas": "libhipblas.so.3",
    "__hip": "libamdhip64.so.7",
    "hip": "libamdhip64.so.7",
}
OTHERS = ("hipfft", "hiprand", "hipsparse")  # prefixes of libraries that are not ours


def wanted(modules: dict[str, Dynamic]) -> dict[str, set[Symbol]]:
    """Return the symbols that the modules ask of each of our libraries."""
    found: dict[str, set[Symbol]] = defaultdict(set)
    for module in modules.values():
        for symbol in module.undefined:
            library = _library(symbol.name)
            if library:
                found[library].add(symbol)
    return found


def _library(name: str) -> str | None:
    if name.startswith(OTHERS):
        return None
    return next((library for prefix, library in PREFIXES.items() if name.startswith(prefix)), None)


def modules_in(site: Path) -> dict[str, Dynamic]:
    """Return what the linker sees of the compiled modules of CuPy in a folder of packages."""
    return {str(path): dynamic(path) for path in sorted(site.glob("cupy*/**/*.so"))}


def complaints(modules: dict[str, Dynamic], folder: Path) -> list[str]:
    """Return what is lacking in the libraries of a folder, in words."""
    if not modules:
        return ["no compiled module of CuPy is installed here; install cupy-rocm-7-0"]
    found = []
    for library, symbols in sorted(wanted(modules).items()):
        ours = set(dynamic(folder / library).defined)
        found += [
            f"{library} lacks {symbol.name}, version {symbol.version or 'none'}"
            for symbol in sorted(symbols - ours)
        ]
    needed = {name for module in modules.values() for name in module.needed}
    foreign = [name for name in needed - PARTS.keys() if not name.startswith(SYSTEM + LAZY)]
    return found + [f"a module needs {name}, which is not known here" for name in sorted(foreign)]


def main() -> None:
    """Print what is lacking, and end with 1 if anything is."""
    modules, folder = modules_in(Path(sysconfig.get_path("platlib"))), build()
    found = complaints(modules, folder)
    for line in found:
        print(line)
    if not found:
        counts = {name: len(symbols) for name, symbols in sorted(wanted(modules).items())}
        print(f"all symbols of {len(modules)} modules are there: {counts}")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
