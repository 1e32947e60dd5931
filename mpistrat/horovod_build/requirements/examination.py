"""Look for all that a build needs, and report everything that is missing at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build.requirements.build_tools import CMake, find_cmake, find_make, find_pip
from mpistrat.horovod_build.requirements.compiler import Compiler, find_compiler
from mpistrat.horovod_build.requirements.cuda import Cuda, Nccl, find_cuda, find_nccl
from mpistrat.horovod_build.requirements.mpi import Mpi, find_mpi
from mpistrat.horovod_build.requirements.tensorflow import TensorFlow, find_tensorflow

__all__ = ["Examination", "Gpus", "Row", "Toolchain", "examine"]

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Row:
    """A line of the report: what was looked for, and what was found or why it will not do."""

    name: str
    found: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Gpus:
    """What a build for NVIDIA's GPUs needs besides."""

    cuda: Cuda
    nccl: Nccl


@dataclass(frozen=True)
class Toolchain:
    """All that a build is made with; `gpus` is None for one on CPUs alone."""

    compiler: Compiler
    mpi: Mpi
    tensorflow: TensorFlow
    cmake: CMake
    gpus: Gpus | None = None


@dataclass
class Examination:
    """What was found here.

    Attributes
    ----------
    rows
        The report.
    toolchain
        None where something is missing.
    """

    rows: list[Row] = field(default_factory=list)
    toolchain: Toolchain | None = None

    def require(self) -> Toolchain:
        """Return the toolchain.

        Raises
        ------
        BackendUnavailableError
            Something is missing; the message has all of it.
        """
        if self.toolchain is None:
            missing = [f"  {row.name}: {row.problem}" for row in self.rows if row.problem]
            raise BackendUnavailableError("\n".join(["Horovod cannot be built here:", *missing]))
        return self.toolchain

    def look(self, name: str, find: Callable[[], _Found]) -> _Found | None:
        """Return what `find` finds, with a row for it; None where it is missing."""
        try:
            found = find()
        except BackendUnavailableError as error:
            self.rows.append(Row(name, problem=str(error)))
            return None
        self.rows.append(Row(name, str(found)))
        return found


def examine(*, cuda: bool = False) -> Examination:
    """Look for compilers, libraries and tools. **Local.** It takes some seconds.

    Parameters
    ----------
    cuda
        Also look for NVIDIA's compiler and NCCL.
    """
    here = Examination()
    tensorflow = here.look("TensorFlow", find_tensorflow)
    compiler = here.look("C++ compiler", find_compiler)
    # A missing compiler would be reported a second time.
    mpi = here.look("MPI", lambda: find_mpi(compiler)) if compiler else None
    cmake = here.look("CMake", find_cmake)
    tools = [here.look("make", find_make), here.look("pip", find_pip)]
    gpus = _gpus(here, tensorflow) if cuda and tensorflow else None
    is_complete = all(tools) and (gpus is not None or not cuda)
    if tensorflow and compiler and mpi and cmake and is_complete:
        here.toolchain = Toolchain(compiler, mpi, tensorflow, cmake, gpus)
    return here


def _gpus(here: Examination, tensorflow: TensorFlow) -> Gpus | None:
    cuda = here.look("CUDA", lambda: find_cuda(tensorflow))
    nccl = here.look("NCCL", lambda: find_nccl(cuda)) if cuda else None
    return Gpus(cuda, nccl) if cuda and nccl else None
