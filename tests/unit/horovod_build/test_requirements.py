"""Each thing that a build needs is found, or the message says how to get it."""

import sys

import pytest

from helpers.horovod.machine import MPICH, OPEN_MPI, Machine
from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build.requirements.build_tools import find_cmake, find_make, find_pip
from mpistrat.horovod_build.requirements.compiler import find_compiler
from mpistrat.horovod_build.requirements.examination import examine
from mpistrat.horovod_build.requirements.mpi import find_mpi
from mpistrat.horovod_build.requirements.tensorflow import find_tensorflow


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


def message(find, *arguments):
    with pytest.raises(BackendUnavailableError) as caught:
        find(*arguments)
    return str(caught.value)


def test_all_is_found(machine):
    toolchain = machine.complete() and examine().require()
    assert toolchain.compiler.version == "g++ (Pretended) 12.2.0"
    assert (toolchain.mpi.version, toolchain.mpi.library) == (MPICH, machine.library)
    assert toolchain.mpi.wrapper == machine.bin / "mpicxx"
    assert str(toolchain.mpi).startswith("MPICH Version: 5.0.2 (")
    assert (toolchain.tensorflow.distribution, toolchain.tensorflow.version) == (
        "tensorflow-cpu",
        "2.21.0",
    )
    assert toolchain.cmake.program == str(machine.bin / "cmake")
    assert toolchain.gpus is None


def test_all_that_is_missing_is_said_at_once(machine):
    machine.complete()
    machine.without("make")
    machine.without("g++")
    said = message(examine().require)
    assert "found no make" in said
    assert "found no C++ compiler" in said
    assert "mpicxx" not in said, "it could not be tried without a compiler"


def test_no_compiler(machine):
    said = message(find_compiler)
    assert "found no C++ compiler" in said
    assert "apt install g++" in said


def test_a_chosen_compiler_that_is_not_there(machine, monkeypatch):
    machine.add_compiler()
    monkeypatch.setenv("CXX", "g++-99 -m64")
    assert "CXX='g++-99'" in message(find_compiler)


def test_a_compiler_that_is_too_old(machine):
    machine.add_compiler(standard="c++14")
    said = message(find_compiler)
    assert "g++ (Pretended) 12.2.0 cannot compile C++17" in said
    assert "install GCC" in said
    assert "unrecognized option" in said, "what the compiler said"


def test_no_wrapper(machine):
    machine.add_compiler()
    machine.add_python()
    said = message(find_mpi, find_compiler())
    assert "found no mpicxx" in said
    assert "mpistrat[mpich]" in said


def test_a_chosen_wrapper_that_is_not_there(machine, monkeypatch):
    machine.complete()
    monkeypatch.setenv("MPICXX", "/opt/mpi/bin/mpicxx")
    assert "MPICXX='/opt/mpi/bin/mpicxx' is not there" in message(find_mpi, find_compiler())


def test_a_chosen_wrapper(machine, monkeypatch):
    machine.complete()
    machine.add_wrapper()
    own = (machine.bin / "mpicxx").rename(machine.folder / "mpiCC")
    monkeypatch.setenv("MPICXX", str(own))
    assert find_mpi(find_compiler()).wrapper == own


def test_a_wrapper_of_another_library(machine):
    machine.complete()
    other = machine.file("opt/lib/libmpi.so.40")
    machine.add_wrapper(OPEN_MPI, other)
    said = message(find_mpi, find_compiler())
    assert f"{machine.bin / 'mpicxx'} links {other} (Open MPI v5.0.11)" in said
    assert f"mpi4py loads {machine.library} (MPICH Version: 5.0.2)" in said
    assert "first on PATH or set MPICXX" in said
    assert f"MPICC={machine.bin / 'mpicc'} pip install" in said


def test_a_copy_of_the_same_library_will_do(machine):
    machine.complete()
    machine.add_wrapper(MPICH, machine.file("copy/lib/libmpi.so.12"))
    assert find_mpi(find_compiler()).library == machine.library


def test_another_version_of_the_same_library(machine):
    machine.complete()
    machine.add_wrapper("MPICH Version: 4.3.0 MPICH Release date: 2025")
    assert "MPICH Version: 4.3.0" in message(find_mpi, find_compiler())


def test_no_mpi_library(machine):
    machine.add_compiler()
    machine.program("python", "echo 'RuntimeError: cannot load MPI library' >&2; exit 1")
    sys.executable = str(machine.bin / "python")
    said = message(find_mpi, find_compiler())
    assert "mpi4py loads no MPI library" in said
    assert "mpistrat[mpich]" in said
    assert "cannot load MPI library" in said


def test_no_tensorflow(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert 'there is no TensorFlow in this environment; pip install "mpistrat[tensorflow]"' in (
        message(find_tensorflow)
    )


def test_another_release_of_tensorflow(machine):
    machine.add_tensorflow("2.19.1")
    assert "TensorFlow is 2.19.1, but mpistrat needs 2.21" in message(find_tensorflow)


def test_tensorflow_without_headers(machine):
    folder = machine.add_tensorflow()
    header = folder / "include" / "xla" / "hlo" / "builder" / "xla_builder.h"
    header.unlink()
    said = message(find_tensorflow)
    assert f"there is no {header}" in said
    assert "from PyPI" in said


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("", "none here"),
        ("echo cmake version 3.13.4", "cmake version 3.13.4 is too old"),
        ("echo ModuleNotFoundError: cmake >&2; exit 1", "does not work"),
    ],
)
def test_a_cmake_that_is_fetched(machine, script, text):
    if script:
        machine.program("cmake", script)
    found = find_cmake()
    assert found.program is None
    assert text in found.text
    assert "fetches PyPI's for itself" in found.text


@pytest.mark.parametrize("version", ["3.18.0", "4.1.2"])
def test_a_cmake_that_will_do(machine, version):
    program = machine.program("cmake", f"echo cmake version {version}")
    assert find_cmake().program == str(program)


def test_no_make(machine):
    assert "apt install make" in message(find_make)


def test_no_pip(monkeypatch):
    monkeypatch.setitem(sys.modules, "pip", None)
    said = message(find_pip)
    assert f"{sys.executable} has no pip" in said
    assert "uv pip install pip" in said
