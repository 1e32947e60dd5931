"""Count the calls of HIP that a program makes, by name, those from inside of CuPy too.

The library that :func:`build_counter` makes has each function of the runtime as two instructions:
count, and go on in the runtime's own. The program is started with it in LD_PRELOAD.
"""

import ctypes
import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

from gpu.pretend.build import COMPILER, FOLDER, build
from gpu.pretend.elf import dynamic

_LIBRARY = "libamdhip64.so.7"
_SOURCE = r"""
#include <dlfcn.h>
extern "C" __attribute__((visibility("hidden"))) long counted_calls[%(count)d];
extern "C" __attribute__((visibility("hidden"))) void* counted_functions[%(count)d];
long counted_calls[%(count)d];
void* counted_functions[%(count)d];
static const char* const names[] = {%(names)s};
__attribute__((constructor)) static void find_functions() {
  void* const library = dlopen("%(library)s", RTLD_LAZY);
  for (int i = 0; i < %(count)d; ++i) counted_functions[i] = dlsym(library, names[i]);
}
extern "C" long counted(int i) { return counted_calls[i]; }
"""
_FUNCTION = r"""
__asm__(".globl %(name)s\n.type %(name)s, @function\n%(name)s:\n"
        "lock incq counted_calls+%(at)d(%%rip)\n"
        "jmp *counted_functions+%(at)d(%%rip)\n");
"""


def why_not() -> str | None:
    """Return why calls cannot be counted here, or None."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    if not any(Path(folder, _LIBRARY).exists() for folder in folders if folder):
        return "no pretended GPUs by CuPy's ROCm wheel"
    return None if platform.machine() == "x86_64" else "instructions of x86-64"


def build_counter(folder: Path) -> Path:
    """Return the library that counts, made in a folder."""
    found = {
        "names": ", ".join(f'"{name}"' for name in _names()),
        "count": len(_names()),
        "library": build() / _LIBRARY,
    }
    functions = [_FUNCTION % {"name": name, "at": 8 * i} for i, name in enumerate(_names())]
    source, library = folder / "counted.cc", folder / "libcounted.so"
    source.write_text(_SOURCE % found + "".join(functions), encoding="utf-8")
    command = [COMPILER, "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True, timeout=60, cwd=FOLDER)
    return library


def calls_during(library: Path | str, work: Callable[[], object]) -> dict[str, int]:
    """Return how often `work` has called each function that it has called."""
    counted = ctypes.CDLL(str(library)).counted
    counted.restype = ctypes.c_long
    before = [counted(i) for i in range(len(_names()))]
    work()
    after = [counted(i) for i in range(len(_names()))]
    return {
        name: new - old
        for name, old, new in zip(_names(), before, after, strict=True)
        if new != old
    }


def _names() -> list[str]:
    """Return the runtime's functions."""
    defined = dynamic(build() / _LIBRARY).defined
    return sorted({one.name for one in defined if one.name.startswith("hip")})
