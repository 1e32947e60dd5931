"""A wheel is found again by the same Python, TensorFlow and MPI, and by no others."""

import dataclasses
import fcntl
import os
from pathlib import Path

import pytest

from mpistrat.errors import BackendUnavailableError
from mpistrat.horovod_build import wheel_cache
from mpistrat.horovod_build.recipe import TARGETS
from mpistrat.horovod_build.requirements.build_tools import CMake
from mpistrat.horovod_build.requirements.compiler import Compiler
from mpistrat.horovod_build.requirements.cuda import Cuda, Nccl
from mpistrat.horovod_build.requirements.examination import Gpus, Toolchain
from mpistrat.horovod_build.requirements.mpi import Mpi
from mpistrat.horovod_build.requirements.tensorflow import TensorFlow
from mpistrat.horovod_build.wheel_cache import cached_wheel

HERE = Toolchain(
    Compiler(("g++",), "g++ 12.2"),
    Mpi(Path("/env/bin/mpicxx"), "MPICH Version: 5.0.2", Path("/env/lib/libmpi.so.12")),
    TensorFlow("tensorflow-cpu", "2.21.0", Path("/env/tensorflow/include"), cuda=None),
    CMake("/usr/bin/cmake", "3.25"),
)
GPUS = Gpus(Cuda(Path("/cuda"), "12.9", "12.5"), Nccl(Path("/i"), Path("/l"), "2.28"))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MPISTRAT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def changed(part, **values):
    return dataclasses.replace(HERE, **{part: dataclasses.replace(getattr(HERE, part), **values)})


def kept(toolchain=HERE, content=b"a wheel"):
    place = cached_wheel(toolchain)
    with place.locked(1.0):
        built = place.folder.parent / "horovod-0.28.1-any.whl"
        built.write_bytes(content)
        return place.keep(built)


@pytest.mark.parametrize(
    "other",
    [
        changed("mpi", version="MPICH Version: 4.3.0"),
        changed("mpi", library=Path("/env/lib/libmpi.so.40")),
        changed("tensorflow", version="2.21.1"),
        changed("tensorflow", distribution="tensorflow"),
        dataclasses.replace(HERE, gpus=GPUS),
    ],
)
def test_others_have_a_place_of_their_own(other):
    wheel = kept()
    assert cached_wheel(HERE).find() == wheel
    assert cached_wheel(other).find() is None
    assert cached_wheel(other).folder != wheel.parent


def test_another_machine(monkeypatch):
    kept()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert cached_wheel(HERE).find() is None


def test_another_recipe(monkeypatch):
    kept()
    monkeypatch.setattr(wheel_cache, "RECIPE", "0")
    assert cached_wheel(HERE).find() is None


def test_another_python(monkeypatch):
    kept()
    monkeypatch.setattr("sysconfig.get_config_var", lambda _: "cpython-399")
    assert cached_wheel(HERE).find() is None


@pytest.mark.parametrize("name", TARGETS)
def test_other_cpus_or_gpus(monkeypatch, name):
    kept()
    monkeypatch.setenv(name, "another")
    assert cached_wheel(HERE).find() is None


def test_another_release_of_cuda():
    of_12 = dataclasses.replace(HERE, gpus=GPUS)
    kept(of_12)
    newer = dataclasses.replace(GPUS, cuda=Cuda(Path("/cuda"), "13.0", "12.5"))
    assert cached_wheel(of_12).find() is not None
    assert cached_wheel(dataclasses.replace(HERE, gpus=newer)).find() is None


@pytest.mark.parametrize(
    "same",
    [
        changed("mpi", wrapper=Path("/other/bin/mpicxx"), library=Path("/other/lib/libmpi.so.12")),
        changed("compiler", version="g++ 13"),
        dataclasses.replace(HERE, cmake=CMake(None, "none")),
    ],
)
def test_the_place_of_the_library_and_the_tools_do_not_count(same):
    assert kept() == cached_wheel(same).find()


def test_there_is_none_at_first(cache):
    assert cached_wheel(HERE).find() is None
    assert not cache.exists(), "to look for it makes nothing"


def test_a_wheel_that_was_changed_is_not_found():
    wheel = kept()
    wheel.write_bytes(b"another wheel")
    assert cached_wheel(HERE).find() is None


def test_a_wheel_that_was_removed_is_not_found():
    kept().unlink()
    assert cached_wheel(HERE).find() is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"wheel": "x"'])
def test_a_note_that_was_not_written_whole(text):
    wheel = kept()
    (wheel.parent / "made_for.json").write_text(text, encoding="utf-8")
    assert cached_wheel(HERE).find() is None


def test_a_folder_that_others_may_write_to(cache):
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.raises(BackendUnavailableError, match="chmod 700 it, or set MPISTRAT_CACHE"):
        kept()


def test_no_folder_on_the_way_is_open_to_others(cache):
    before = os.umask(0o002)
    try:
        folder = kept().parent
    finally:
        os.umask(before)
    ours = [folder, *folder.parents[:2]]
    assert ours[-1] == cache
    assert [one.stat().st_mode & 0o022 for one in ours] == [0, 0, 0]


def test_a_folder_that_cannot_be_made(cache):
    cache.write_text("a file", encoding="utf-8")
    with pytest.raises(BackendUnavailableError, match="cannot make a folder for the wheel"):
        kept()


def test_two_builds_do_not_run_at_a_time():
    place = cached_wheel(HERE)
    kept()
    with (place.folder / "lock").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BackendUnavailableError, match="another process has been building"):
            place.locked(0.1).__enter__()
    with place.locked(0.1):
        pass
