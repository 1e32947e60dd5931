"""libhiprtc.so.7 on the pretended GPU: sources become images, and errors name their lines."""

import ctypes
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu.pretend.on_host.building import threads_library
from mpistrat.testing.sets import takes_long

FOLDER = Path(__file__).parents[1]
TIMEOUT_S = 120
SUCCESS, INVALID_OPTION, COMPILATION, NOT_VALID, INTERNAL_ERROR = 0, 5, 6, 10, 11

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("compiler") / "libhiprtc.so.7"
    script = FOLDER / "compiler" / "hiprtc.map"
    flags = ["-std=c++20", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", f"-I{FOLDER}"]
    sources = sorted((FOLDER / "compiler").glob("*.cc"))
    link = [f"-Wl,-soname,{path.name}", f"-Wl,--version-script={script}", "-o", path]
    subprocess.run(["g++", *flags, *sources, *link], check=True, timeout=TIMEOUT_S)
    return path


class Compiled:
    """What became of a source: result, log, image, and lowered names by expression."""

    def __init__(self, library, source, *options, expressions=(), headers=None, name="k.cu"):
        self._rtc = rtc = ctypes.CDLL(str(library))
        headers = headers or {}
        self._program = program = ctypes.c_void_p()
        texts, names = _strings(headers.values()), _strings(headers)
        created = rtc.hiprtcCreateProgram(
            ctypes.byref(program), source.encode(), name.encode(), len(headers), texts, names
        )
        assert created == SUCCESS
        for expression in expressions:
            assert rtc.hiprtcAddNameExpression(program, expression.encode()) == SUCCESS
        self.result = rtc.hiprtcCompileProgram(program, len(options), _strings(options))
        self.log = self._bytes("ProgramLogSize", "ProgramLog").rstrip(b"\0").decode()
        self.image = self._bytes("CodeSize", "Code") if self.result == SUCCESS else b""
        self.lowered = {e: self._lowered(e) for e in expressions} if self.image else {}
        assert rtc.hiprtcDestroyProgram(ctypes.byref(program)) == SUCCESS

    def _bytes(self, size, content):
        nbytes = ctypes.c_size_t()
        assert getattr(self._rtc, f"hiprtcGet{size}")(self._program, ctypes.byref(nbytes)) == 0
        text = ctypes.create_string_buffer(nbytes.value)
        assert getattr(self._rtc, f"hiprtcGet{content}")(self._program, text) == 0
        return text.raw

    def _lowered(self, expression):
        name = ctypes.c_char_p()
        assert self._rtc.hiprtcGetLoweredName(self._program, b"no such", ctypes.byref(name)) == (
            NOT_VALID
        )
        found = self._rtc.hiprtcGetLoweredName(
            self._program, expression.encode(), ctypes.byref(name)
        )
        assert found == SUCCESS
        return name.value.decode()


def _strings(values):
    encoded = [value.encode() for value in values]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def exported(image, tmp_path):
    """Return the names that an image exports, and those that it leaves to its program."""
    assert image[:8] == b"PRETEND:"
    size = int.from_bytes(image[8:16], "little")
    assert len(image) == 16 + size
    path = tmp_path / "image.so"
    path.write_bytes(image[16:])
    listed = subprocess.run(
        ["nm", "-D", path], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout
    words = [line.split() for line in listed.splitlines()]
    return {w[-1] for w in words if w[-2] in "TDBR"}, {w[-1] for w in words if w[-2] == "U"}


SOURCE = """
template <typename T> __global__ void twice(T* x) { *x *= 2; }
namespace inner { __global__ void other(int* x) { *x = 1; } }
__device__ int table[3] = {1, 2, 3};
__constant__ float scale = 2;
__device__ const char* text = "} extern \\"C\\" { __global__ void not_this() {}";
extern "C" {
__global__ __launch_bounds__(64, 2) void second(float* x);
__launch_bounds__(64) __global__ void second(float* x) { *x = scale; }
}
extern "C" __global__ void first(int* x, double y, char z) {
  extern __shared__ __align__(16) unsigned char bytes[];
  __shared__ int kept[4];
  __syncthreads();
  *x = bytes[0] + kept[0] + table[0] + (z == '{') + 1'000;
}
"""


RUN_IMAGE = """
import ctypes, sys
threads = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
entry = ctypes.CDLL(sys.argv[2])["pretend_entry_" + sys.argv[3]]
data = (ctypes.c_double * 48)(*range(48))
values = [ctypes.c_void_p(ctypes.addressof(data)), ctypes.c_double(3)]
arguments = (ctypes.c_void_p * 2)(*[ctypes.addressof(value) for value in values])
shape = (ctypes.c_uint * 6)(1, 1, 1, 48, 1, 1)
run = threads.pretend_run_grid
assert run(ctypes.cast(entry, ctypes.c_void_p), shape, ctypes.c_size_t(384), arguments) == 0
print(*data)
"""


@takes_long()
def test_image_exports_kernels_and_variables(library, tmp_path):
    compiled = Compiled(library, SOURCE, expressions=["twice<int>", "inner::other", "&scale"])
    assert compiled.result == SUCCESS, compiled.log
    names, wanted = exported(compiled.image, tmp_path)
    kernels = ["first", "second", compiled.lowered["twice<int>"], compiled.lowered["inner::other"]]
    assert {f"pretend_entry_{kernel}" for kernel in kernels} <= names
    assert {f"pretend_argument_sizes_{kernel}" for kernel in kernels} <= names
    assert {"table", "scale"} <= names
    assert compiled.lowered["&scale"] == "scale"
    assert "pretend_entry_not_this" not in names
    # Found in the program that loads the image.
    assert any("sync_block" in symbol for symbol in wanted)
    assert any("dynamic_shared_memory" in symbol for symbol in wanted)


@takes_long()
def test_image_runs_in_a_program_that_has_the_threads(library, tmp_path):
    source = """
    template <typename T> __global__ void scale(T* data, T by) {
      extern __shared__ T shared[];
      shared[threadIdx.x] = data[threadIdx.x];
      __syncthreads();
      data[threadIdx.x] = by * shared[blockDim.x - 1 - threadIdx.x];
    }
    """
    compiled = Compiled(library, source, expressions=["scale<double>"])
    assert compiled.result == SUCCESS, compiled.log
    path = tmp_path / "image.so"
    path.write_bytes(compiled.image[16:])
    # In a process of its own: the symbols of threads/ are for all of it.
    name = compiled.lowered["scale<double>"]
    done = subprocess.run(
        [sys.executable, "-c", RUN_IMAGE, threads_library(), path, name],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    assert done.stdout.split() == [str(3.0 * value) for value in reversed(range(48))]


@takes_long()
def test_errors_have_the_users_lines(library):
    source = 'extern "C" __global__ void f(int* x) {\n\n  *x = totl;\n}\n'
    compiled = Compiled(library, source, name="/some/where/kernel.cu")
    assert compiled.result == COMPILATION
    assert "/some/where/kernel.cu:3:" in compiled.log
    assert "totl" in compiled.log


def test_an_expression_that_is_wrong_is_named(library):
    compiled = Compiled(library, SOURCE, expressions=["twice<nothing>"])
    assert compiled.result == COMPILATION
    assert "name expression twice<nothing>" in compiled.log


def test_options(library, tmp_path):
    (tmp_path / "with space").mkdir()
    (tmp_path / "with space" / "value.h").write_text("#define VALUE ok\n")
    source = '#include <value.h>\nextern "C" __global__ void name(int* ok) { *VALUE = OTHER; }'
    options = ["-I", str(tmp_path / "with space"), "-DOTHER=3", "--std=c++14", "-ffp-contract=off"]
    assert Compiled(library, source, *options).result == SUCCESS
    assert Compiled(library, source, "-DOTHER=3").result == COMPILATION


def test_unknown_option_is_refused(library):
    compiled = Compiled(library, SOURCE, "--maxrregcount=32")
    assert compiled.result == INVALID_OPTION
    assert "unknown option --maxrregcount=32" in compiled.log


@takes_long()
def test_no_shell_reads_names_and_options(library, tmp_path):
    trap = tmp_path / "trap"
    for text in (
        f"$(touch {trap})",
        f"'; touch {trap}; '",
        f'"; touch {trap}; "',
        f"`touch {trap}`",
    ):
        Compiled(library, SOURCE, f"-DX={text}", f"-I{text}", name=text)
    assert not trap.exists()


def test_headers(library):
    source = '#include "deep/a.h"\nextern "C" __global__ void f(int* x) { *x = A; }'
    compiled = Compiled(library, source, headers={"deep/a.h": "#define A 3\n"})
    assert compiled.result == SUCCESS, compiled.log
    refused = Compiled(library, source, headers={"../a.h": ""})
    assert refused.result == INTERNAL_ERROR
    assert "relative name" in refused.log


def test_which_compiler_is_the_same_each_time(library, monkeypatch):
    dummy = "__global__ void _cupy_preprocess_dummy_kernel_() { }"
    first, second = Compiled(library, dummy), Compiled(library, dummy)
    assert first.image == second.image
    assert first.image.startswith(b"// pretended hipRTC ")
    monkeypatch.setenv("PRETEND_CXXFLAGS", "-O2")  # other flags are another compiler
    other = Compiled(library, dummy)
    assert other.image.startswith(b"// pretended hipRTC ")
    assert other.image != first.image


@takes_long()
def test_what_is_left_behind(library, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert Compiled(library, SOURCE).result == SUCCESS
    assert Compiled(library, "nonsense").result == COMPILATION
    assert list(tmp_path.iterdir()) == []


@takes_long()
def test_ranks_share_what_one_of_them_compiles(library, monkeypatch, tmp_path):
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    first = Compiled(library, SOURCE, name="/one/k.cu")
    assert first.result == SUCCESS, first.log
    (kept,) = (one for one in (tmp_path / "objects").iterdir() if not one.suffix)
    kept.write_bytes(b"of another rank")
    assert Compiled(library, SOURCE, name="/two/k.cu").image.endswith(b"of another rank")
    assert Compiled(library, SOURCE, "-DX=1").image[16:] != b"of another rank"
    assert Compiled(library, SOURCE + "int more;").image[16:] != b"of another rank"


def test_no_compiler(library, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    compiled = Compiled(library, SOURCE)
    assert compiled.result == INTERNAL_ERROR
    assert "cannot start g++" in compiled.log


@takes_long()
def test_a_compiler_that_hangs_is_ended(library, monkeypatch, tmp_path):
    stuck = tmp_path / "g++"
    stuck.write_text("#!/bin/sh\nsleep 1000 &\nwait\n")
    stuck.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PRETEND_COMPILE_S", "1")
    start = time.monotonic()
    compiled = Compiled(library, SOURCE)
    assert time.monotonic() - start < 30
    assert compiled.result == COMPILATION
    assert "g++ was ended after 1 s" in compiled.log
