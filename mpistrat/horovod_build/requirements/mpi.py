"""Find the MPI library that mpi4py calls, and the compiler wrapper that belongs to it.

Horovod is linked with one MPI library, and takes the communicator from mpi4py: in another library
its handle means nothing. So a program that the wrapper has linked is asked which library it loads.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build.requirements.asking import ask
from mpistrat.horovod_build.requirements.compiler import Compiler

__all__ = ["Mpi", "find_mpi", "wrapper_variables"]

_INSTALL = (
    'pip install "mpistrat[mpich]" brings one, or load the MPI module of this machine and build'
    " mpi4py with it"
)
_FOR_WRAPPER = (
    'pip install "mpistrat[mpich]" brings it with the library (Debian: apt install libmpich-dev or'
    " libopenmpi-dev; a cluster: its MPI module); or set MPICXX"
)
_NAMES = ("mpicxx", "mpic++", "mpiCC")
# Without their bindings for C++, and the helpers that have names of their own.
_LIBRARIES = (
    "libmpi.",
    "libmpi_abi.",
    "libmpich.",
    "libmpi_cray.",
    "libmpi_gnu_",
    "libmpi_intel.",
)
_MAPS = "/proc/self/maps"

# Both print the version text in one line, then the memory map. MPI is not started.
_OF_MPI4PY = f"""
import mpi4py
mpi4py.rc.initialize = mpi4py.rc.finalize = False
from mpi4py import MPI
print(" ".join(MPI.Get_library_version().rstrip("\\0").split()))
print(open("{_MAPS}").read())
"""
_OF_WRAPPER = f"""
#include <mpi.h>
#include <cstdio>
int main() {{
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return 1;
  for (char* at = text; *at; ++at) std::putchar(*at == '\\n' ? ' ' : *at);
  std::putchar('\\n');
  std::FILE* maps = std::fopen("{_MAPS}", "r");
  for (int c; maps && (c = std::getc(maps)) != EOF;) std::putchar(c);
}}
"""


@dataclass(frozen=True)
class Mpi:
    """An MPI library with its compiler wrapper.

    Attributes
    ----------
    wrapper
        The program ``mpicxx``.
    version
        The text of MPI_Get_library_version, in one line.
    library
        The file of the library; None where it is part of mpi4py.
    """

    wrapper: Path
    version: str
    library: Path | None

    def __str__(self) -> str:
        """Return the line of the report."""
        return f"{_short(self.version)} ({self.library or 'in mpi4py'}, {self.wrapper})"


def find_mpi(compiler: Compiler) -> Mpi:
    """Return mpi4py's library with its wrapper. **Local.** It compiles and runs a small program.

    Raises
    ------
    BackendUnavailableError
        There is no mpi4py, library or wrapper, or the wrapper belongs to another library.
    """
    said = ask([sys.executable, "-c", _OF_MPI4PY], f"mpi4py loads no MPI library; {_INSTALL}")
    version, library = _read(said)
    wrapper = _find_wrapper()
    linked_version, linked = _read(_ask_wrapper(wrapper, compiler))
    # Two copies of one version may stand for each other: the loader goes by the file's name.
    if (_name(library), version) != (_name(linked), linked_version):
        raise BackendUnavailableError(
            f"{wrapper} links {linked or 'an archive'} ({_short(linked_version)}), but mpi4py"
            f" loads {library or 'one of its own'} ({_short(version)}); put the bin folder of"
            " mpi4py's library first on PATH or set MPICXX, or build mpi4py with this one: MPICC="
            f"{wrapper.with_name('mpicc')} pip install --no-binary mpi4py --force-reinstall mpi4py"
        )
    return Mpi(wrapper, version, library)


def wrapper_variables(compiler: Compiler) -> Mapping[str, str]:
    """Return the variables by which wrappers are told which compiler they start."""
    command = " ".join(compiler.command)
    return {"MPICH_CXX": command, "OMPI_CXX": command, "I_MPI_CXX": command}


def _find_wrapper() -> Path:
    """Return ``$MPICXX``, else the wrapper beside this Python, else the first on the PATH."""
    chosen = os.environ.get("MPICXX", "")
    places = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.environ.get("PATH", "")])
    names = [chosen] if chosen else _NAMES
    found = next(filter(None, (shutil.which(name, path=places) for name in names)), None)
    if found is None:
        what = f"MPICXX={chosen!r} is not there" if chosen else "found no mpicxx"
        raise BackendUnavailableError(f"{what}, which compiles MPI programs; {_FOR_WRAPPER}")
    return Path(found)


def _ask_wrapper(wrapper: Path, compiler: Compiler) -> str:
    env = {**os.environ, **wrapper_variables(compiler)}
    with tempfile.TemporaryDirectory(prefix="mpistrat-") as folder:
        source, program = Path(folder) / "version.cc", Path(folder) / "version"
        source.write_text(_OF_WRAPPER, encoding="utf-8")
        ask([str(wrapper), str(source), "-o", str(program)], _FOR_WRAPPER, env=env)
        return ask([str(program)], f"a program compiled by {wrapper} fails here; {_FOR_WRAPPER}")


def _name(library: Path | None) -> str:
    return library.name if library else ""


def _short(version: str) -> str:
    """Return a version text up to its first number: ``MPICH Version: 5.0.2``."""
    found = re.match(r".*?\d[\d.]*", version)
    return found[0] if found else version


def _read(said: str) -> tuple[str, Path | None]:
    """Return the version text, and the library among the files of a memory map."""
    version, _, maps = said.partition("\n")
    paths = (line.split(maxsplit=5)[-1] for line in maps.splitlines() if line.count("/"))
    found = {Path(path).resolve() for path in paths if Path(path).name.startswith(_LIBRARIES)}
    return " ".join(version.split()), min(found, default=None)
