"""The environment of the build."""

import os
import re
import sys

import pytest

from helpers.horovod.machine import Machine
from mpistrat.horovod_build.recipe import SHA256, environment
from mpistrat.horovod_build.requirements.examination import examine


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch).complete()


@pytest.fixture
def toolchain(machine):
    return examine().require()


def made(toolchain, machine):
    return environment(toolchain, machine.folder / "headers", machine.folder / "tools")


def test_what_is_built(toolchain, machine):
    env = made(toolchain, machine)
    chosen = {name: text for name, text in env.items() if name.startswith("HOROVOD_")}
    assert chosen == {
        "HOROVOD_CMAKE": str(machine.bin / "cmake"),
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITH_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_GLOO": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITHOUT_PYTORCH": "1",
    }


def test_what_the_user_has_set_for_another_build_is_not_used(toolchain, machine, monkeypatch):
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "MPI")
    monkeypatch.setenv("MPI_HOME", "/opt/other-mpi")
    env = made(toolchain, machine)
    assert "HOROVOD_GPU_OPERATIONS" not in env
    assert env["MPI_HOME"] == str(machine.bin.parent), "where CMake looks first"


def test_what_the_user_has_set_of_the_machine_is_used(toolchain, machine, monkeypatch):
    monkeypatch.setenv("HOROVOD_BUILD_CUDA_CC_LIST", "80,90")
    assert made(toolchain, machine)["HOROVOD_BUILD_CUDA_CC_LIST"] == "80,90"


def test_the_headers_come_after_those_of_tensorflow(toolchain, machine, monkeypatch):
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/opt/include")
    include = machine.folder / "packages" / "tensorflow" / "include"
    assert made(toolchain, machine)["CPLUS_INCLUDE_PATH"].split(os.pathsep) == [
        str(machine.folder / "headers"),
        str(include / "external" / "highwayhash"),
        str(include / "external" / "farmhash_archive" / "src"),
        "/opt/include",
    ]


def test_the_wrapper_and_python_are_the_first_on_the_path(toolchain, machine, monkeypatch):
    monkeypatch.setenv("PATH", "/opt/bin")
    places = made(toolchain, machine)["PATH"].split(os.pathsep)
    assert places == [str(machine.bin), os.path.dirname(sys.executable), "/opt/bin"]


def test_the_tools_of_the_build_go_before_the_environment(toolchain, machine, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/opt/python")
    assert made(toolchain, machine)["PYTHONPATH"] == f"{machine.folder / 'tools'}:/opt/python"


def test_cmake_is_that_of_the_build_where_none_is_here(machine):
    machine.without("cmake")
    cmake = made(examine().require(), machine)["HOROVOD_CMAKE"]
    assert cmake == str(machine.folder / "tools" / "cmake" / "data" / "bin" / "cmake")


def test_the_number_of_jobs(toolchain, machine, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3)))
    assert made(toolchain, machine)["MAKEFLAGS"] == "-j3"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(128)))
    assert made(toolchain, machine)["MAKEFLAGS"] == "-j8"
    monkeypatch.setenv("MAKEFLAGS", "-j1")
    assert made(toolchain, machine)["MAKEFLAGS"] == "-j1"


def test_the_digest_is_one():
    assert re.fullmatch("[0-9a-f]{64}", SHA256)
