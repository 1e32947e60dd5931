"""A build for GPUs needs nvcc, NCCL, and a TensorFlow that has CUDA."""

import sys

import pytest

from helpers.horovod.machine import Machine
from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build.recipe import environment
from mpistrat.horovod_build.requirements import cuda as requirement
from mpistrat.horovod_build.requirements.examination import examine

HEADER = "#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n"
NVCC = "echo 'Cuda compilation tools, release 12.9, V12.9.86'"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(requirement, "_SYSTEM", (str(tmp_path / "usr"),))
    monkeypatch.setattr(requirement, "_USUAL", str(tmp_path / "usr"))
    monkeypatch.setitem(sys.modules, "nvidia", None)
    return Machine(tmp_path, monkeypatch).complete()


def add_toolkit(machine, name="environment"):
    nvcc = machine.program("nvcc", NVCC)
    machine.file(f"{name}/include/cuda_runtime.h")
    (machine.folder / name / "bin").mkdir(exist_ok=True)
    return nvcc.rename(machine.folder / name / "bin" / "nvcc").parents[1]


def missing():
    with pytest.raises(BackendUnavailableError) as caught:
        examine(cuda=True).require()
    return str(caught.value)


def test_a_tensorflow_for_cpus(machine):
    said = missing()
    assert "tensorflow-cpu 2.21.0 was not built for GPUs" in said
    assert "tensorflow[and-cuda]" in said


def test_no_nvcc(machine):
    machine.add_tensorflow(cuda=True)
    said = missing()
    assert "found no folder with bin/nvcc and include/cuda_runtime.h" in said
    assert "CUDA_HOME" in said


def test_nvcc_that_starts_another_one(machine):
    machine.add_tensorflow(cuda=True)
    machine.file("usr/include/nccl.h", HEADER)
    machine.file("usr/lib/libnccl.so")
    machine.program("nvcc", "exec /opt/cuda/bin/nvcc")
    assert "found no folder with bin/nvcc" in missing(), "it has no headers beside"
    add_toolkit(machine, "usr")
    machine.program("nvcc", "exec /opt/cuda/bin/nvcc")
    assert examine(cuda=True).require().gpus.cuda.home == machine.folder / "usr"


def test_no_nccl(machine):
    machine.add_tensorflow(cuda=True)
    add_toolkit(machine)
    said = missing()
    assert "found no NCCL with its header" in said
    assert "nvidia-nccl-cu12" in said


def test_an_old_nccl(machine):
    machine.add_tensorflow(cuda=True)
    add_toolkit(machine)
    machine.file("usr/include/nccl.h", HEADER.replace("2\n", "1\n", 1))
    machine.file("usr/lib/libnccl.so")
    assert "is of NCCL 1.28" in missing()


def test_nccl_of_the_system(machine):
    machine.add_tensorflow(cuda=True)
    add_toolkit(machine)
    machine.file("usr/include/nccl.h", HEADER)
    library = machine.file("usr/lib/x86_64-linux-gnu/libnccl.so")
    toolchain = examine(cuda=True).require()
    assert toolchain.gpus.cuda.release == "12.9"
    assert toolchain.gpus.cuda.home == machine.bin.parent
    assert "TensorFlow was built with 12.5.1" in str(toolchain.gpus.cuda)
    assert (toolchain.gpus.nccl.version, toolchain.gpus.nccl.library) == ("2.28", library)
    env = environment(toolchain, machine.folder / "headers", machine.folder / "tools")
    assert env["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert env["HOROVOD_CUDA_HOME"] == str(machine.bin.parent)
    assert env["HOROVOD_NCCL_LIB"] == str(library.parent)
    assert env["HOROVOD_NCCL_INCLUDE"] == str(machine.folder / "usr" / "include")


def test_the_nvcc_that_was_found_goes_before_others(machine, monkeypatch):
    machine.add_tensorflow(cuda=True)
    add_toolkit(machine)
    own = add_toolkit(machine, "cuda")
    machine.file("cuda/include/nccl.h", HEADER)
    machine.file("cuda/lib64/libnccl.so")
    monkeypatch.setenv("CUDA_HOME", str(own))
    env = environment(examine(cuda=True).require(), machine.folder, machine.folder)
    assert env["PATH"].split(":")[2] == str(own / "bin")


def test_nccl_of_a_chosen_folder_goes_first(machine, monkeypatch):
    machine.add_tensorflow(cuda=True)
    add_toolkit(machine)
    for place in ("usr", "opt"):
        machine.file(f"{place}/include/nccl.h", HEADER)
        machine.file(f"{place}/lib/libnccl.so")
    monkeypatch.setenv("NCCL_HOME", str(machine.folder / "opt"))
    found = examine(cuda=True).require().gpus.nccl
    assert found.library == machine.folder / "opt" / "lib" / "libnccl.so"


def test_the_linker_finds_nccl_of_a_package(machine):
    machine.add_tensorflow(cuda=True)
    add_toolkit(machine)
    machine.file("packages/nvidia/nccl/include/nccl.h", HEADER)
    library = machine.file("packages/nvidia/nccl/lib/libnccl.so.2", "a library")
    del sys.modules["nvidia"]
    toolchain = examine(cuda=True).require()
    assert toolchain.gpus.nccl.library == library
    tools = machine.folder / "tools"
    env = environment(toolchain, machine.folder / "headers", tools)
    link = tools / "nccl" / "libnccl.so"
    assert env["HOROVOD_NCCL_LIB"] == str(link.parent)
    assert link.read_text(encoding="utf-8") == "a library"
    # Where it is looked for when it is used, for `link` is gone by then.
    assert f"-Wl,-rpath,{library.parent}" in env["LDFLAGS"].split()
    assert r"-Wl,-rpath,\$ORIGIN/../../nvidia/nccl/lib" in env["LDFLAGS"].split()
