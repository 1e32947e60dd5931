"""The C++ kernels' own tests, compiled and run plainly, under sanitizers, and for AArch64.

They need nothing of Python or MPI; each is a program that prints what is wrong and exits with 1.
Those for AArch64 run under QEMU, which on x86-64 does not reveal code that wrongly relies on
x86-64's memory ordering; ThreadSanitizer does.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from mpistrat.testing.sets import repeats, takes_long, with_all

KERNELS = Path(__file__).parents[3] / "kernels"
ARITHMETIC = ("common", "simd", "rows")  # all that simd_* and rows_* link
LAYERS = (*ARITHMETIC, "calls", "shm", "mpi", "wire", "store")
TESTS = sorted(KERNELS.glob("tests/*_test.cc"))

# -ffp-contract=off: the instruction sets agree on every bit only without fused multiply-adds.
# -g1: lines for the reports; more would take a third longer to compile.
FLAGS = ["-std=c++17", "-g1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-pthread"]
BUILDS = {
    "plain": ["-O3" if with_all() else "-O1"],  # takes half as long; users have -O3
    "thread": ["-O1", "-fsanitize=thread"],
    "address,undefined": [
        "-O0",  # half the time of compiling, and more than that of running
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ],
    "aarch64": ["-O2", "-static"],
}
CROSS_COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"
# A third of the time where arrays of 100 kB come and go: clear what is noted of their memory, and
# do not map it anew, for which all processors have to be told.
ENVIRONMENT = {**os.environ, "TSAN_OPTIONS": "clear_shadow_mmap_threshold=4000000"}
COMPILE_S = 300
RUN_S = 120
EMULATED_RUN_S = 200

Builder = Callable[[str, tuple[str, ...]], list[Path]]


def compiler(build: str) -> list[str]:
    """Return $CXX with its arguments or the usual compiler; skip the test if there is none."""
    if build == "aarch64":
        return [cross_compiler()]
    names = [os.environ.get("CXX", ""), "c++", "g++", "clang++"]
    for command in map(shlex.split, names):
        if command and shutil.which(command[0]):
            return command
    pytest.skip(f"found no C++ compiler: neither $CXX nor any of {', '.join(names[1:])}")


def cross_compiler() -> str:
    """Return the compiler for AArch64; skip the test if it or QEMU is missing."""
    for program in (CROSS_COMPILER, EMULATOR):
        if not shutil.which(program):
            pytest.skip(f"no {program}: Debian's g++-aarch64-linux-gnu and qemu-user have both")
    return CROSS_COMPILER


def run(command: list[str | Path], deadline_s: float) -> None:
    """Run `command`; fail with all that it said if it does, or if it takes too long."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=ENVIRONMENT,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"").decode(errors="replace")
        pytest.fail(f"{command[0]} was stopped after {deadline_s} s:\n{said}", pytrace=False)
    if done.returncode != 0:
        text = f"{shlex.join(map(str, command))} exited with {done.returncode}:\n{done.stdout}"
        pytest.fail(text, pytrace=False)


def compile_object(build: str, source: Path, folder: Path) -> Path:
    target = folder / f"{source.parent.name}_{source.stem}.o"
    include = f"-I{KERNELS / 'include'}"
    run([*compiler(build), *FLAGS, *BUILDS[build], include, "-c", source, "-o", target], COMPILE_S)
    return target


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Return a function that gives the object files of a build's layers, compiled once."""
    folder = tmp_path_factory.mktemp("kernels")

    @cache
    def build_layers(build: str, layers: tuple[str, ...]) -> list[Path]:
        compiler(build)  # skips here, not in a thread
        sources = sorted(file for one in layers for file in KERNELS.glob(f"{one}/**/*.cc"))
        into = folder / build
        into.mkdir(exist_ok=True)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(lambda source: compile_object(build, source, into), sources))

    return build_layers


def is_arithmetic(test: Path) -> bool:
    return test.stem.startswith(("simd_", "rows_"))


def marks(build: str, test: Path) -> list[pytest.MarkDecorator]:
    """Say when a case runs: the sanitizers run all, the plain build arithmetic alone."""
    if build != "plain" or is_arithmetic(test):
        return [takes_long(unit="build")]
    return [repeats()]


# Reductions and rows alone have no threads, and are slow under that sanitizer.
CASES = [
    pytest.param(build, test, id=f"{build}-{test.stem}", marks=marks(build, test))
    for build in BUILDS
    for test in TESTS
    if build != "thread" or not is_arithmetic(test)
]


@pytest.mark.deadline(280)  # compiling takes most of it, on a machine with other work
@pytest.mark.parametrize(("build", "test"), CASES)
def test_kernels(build: str, test: Path, objects: Builder, tmp_path: Path) -> None:
    rest = tuple(layer for layer in LAYERS if layer not in ARITHMETIC)
    libraries = objects(build, ARITHMETIC) + ([] if is_arithmetic(test) else objects(build, rest))
    main = compile_object(build, test, tmp_path)
    program = tmp_path / test.stem
    system = ["-lrt"] if sys.platform == "linux" else []  # shm_open, in an old C library
    command = [*compiler(build), *FLAGS, *BUILDS[build], main, *libraries, "-o", program, *system]
    run(command, COMPILE_S)
    if build == "aarch64":
        run([EMULATOR, program], EMULATED_RUN_S)
    else:
        run([program], RUN_S)
