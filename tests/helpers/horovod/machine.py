"""A folder of small programs that stand in for compilers, MPI, TensorFlow and pip on the PATH."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

__all__ = ["Machine"]

MPICH = "MPICH Version: 5.0.2 MPICH Release date: 2026"
OPEN_MPI = "Open MPI v5.0.11, package: Open MPI"
_MAP = "7f00-7f01 r-xp 00000000 fe:00 1 {library}"
_WHEEL = "horovod-0.28.1-cp311-cp311-linux_x86_64.whl"


class Machine:
    """The machine: only its own programs are on the PATH, besides those of the system's shell.

    Parameters
    ----------
    folder
        Where all is put.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, patch
        self.bin = folder / "environment" / "bin"
        self.bin.mkdir(parents=True)
        patch.setenv("PATH", str(self.bin))
        patch.setattr(sys, "prefix", str(folder / "environment"))
        patch.setattr(sys, "executable", sys.executable)  # put back at the end, whoever sets it
        for name in ("CXX", "MPICXX", "CUDA_HOME", "CUDA_PATH", "NCCL_HOME", "NCCL_ROOT"):
            patch.delenv(name, raising=False)
        patch.setenv("MPISTRAT_CACHE", str(folder / "cache"))
        self.library = self.file("environment/lib/libmpi.so.12", "")

    def complete(self) -> Machine:
        """Add all that a build needs, and return this machine."""
        self.add_compiler()
        self.add_python()
        self.add_wrapper()
        self.add_tensorflow()
        self.program("make", "exit 0")
        self.program("cmake", "echo cmake version 3.25.1")
        return self

    def program(self, name: str, script: str) -> Path:
        """Put a shell script on the PATH."""
        file = self.bin / name
        file.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n", encoding="utf-8")
        file.chmod(0o755)
        return file

    def without(self, name: str) -> None:
        """Take a program away."""
        (self.bin / name).unlink()

    def add_compiler(self, *, standard: str = "c++17") -> None:
        """Add a ``g++`` that knows one standard of C++."""
        self.program(
            "g++",
            'case "$*" in\n'
            '  *--version*) echo "g++ (Pretended) 12.2.0"; echo more;;\n'
            f"  *-std={standard}*) exit 0;;\n"
            '  *) echo "unrecognized option" >&2; exit 1;;\nesac',
        )

    def add_python(self, version: str = MPICH, pip: str = "") -> None:
        """Let the running Python be a script: its mpi4py loads `library`, its pip is given."""
        said = f"{version}\n{_MAP.format(library=self.library)}"
        wheel = f"printf wheel > $folder/{_WHEEL}"
        script = pip or f'echo "[ 50%] Building CXX object"; {wheel}'
        self._patch.setattr(
            sys,
            "executable",
            str(
                self.program(
                    "python",
                    f'echo "$*" >> {self.folder}/calls\n'
                    'case "$*" in\n'
                    f"  *mpi4py*) printf '%s\\n' '{said}';;\n"
                    '  *"pip --version"*) echo "pip 26.0";;\n'
                    '  *"pip wheel"*) while [ "$1" != --wheel-dir ]; do shift; done; folder=$2\n'
                    f"    {script};;\n"
                    '  *"pip install"*) echo installed;;\n'
                    "  *) exit 3;;\nesac",
                )
            ),
        )

    def calls(self, word: str) -> list[str]:
        """Return the command lines of the running Python that contain a word."""
        file = self.folder / "calls"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [line for line in lines if word in line]

    def add_wrapper(self, version: str = MPICH, library: Path | None = None) -> None:
        """Add an ``mpicxx``, whose programs load a library of that version."""
        said = f"{version}\n{_MAP.format(library=library or self.library)}"
        self.program(
            "mpicxx",
            'while [ "$1" != -o ]; do shift; done\n'
            f'printf \'#!/bin/sh\\nprintf "%%s\\\\n" "{said}"\\n\' > $2; chmod +x $2',
        )

    def add_tensorflow(self, version: str = "2.21.0", *, cuda: bool = False) -> Path:
        """Add a package with headers, first on the path of Python; return its folder."""
        top = self.folder / "packages"
        name = "tensorflow" if cuda else "tensorflow_cpu"
        self.file(
            "packages/tensorflow/python/platform/build_info.py",
            f"('is_cuda_build', {cuda}), ('cuda_version', '12.5.1')",
        )
        self.file("packages/tensorflow/__init__.py", "")
        self.file("packages/tensorflow/include/xla/hlo/builder/xla_builder.h", "")
        information = f"packages/{name}-{version}.dist-info"
        self.file(f"{information}/METADATA", f"Name: {name}\nVersion: {version}\n")
        self.file(f"{information}/top_level.txt", "tensorflow\n")
        self.file(f"{information}/RECORD", "tensorflow/__init__.py,,\n")
        self._patch.syspath_prepend(str(top))
        self._patch.delitem(sys.modules, "tensorflow", raising=False)
        return top / "tensorflow"

    def file(self, name: str, text: str = "") -> Path:
        """Write a file in the folder of the machine."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file
