"""The check that our libraries have all that an installed CuPy asks for."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from gpu.pretend import build, check
from gpu.pretend.elf import Dynamic, Symbol, dynamic
from gpu.pretend.tests.runtime_job import why_not

pytestmark = pytest.mark.skipif(build.why_not() is not None, reason=str(build.why_not()))


@pytest.fixture(scope="module")
def folder():
    return build.build()


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_an_installed_cupy_finds_everything(folder):
    modules = check.modules_in(Path(sysconfig.get_path("platlib")))
    assert len(check.wanted(modules)["libamdhip64.so.7"]) > 50
    assert check.complaints(modules, folder) == []


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        (Dynamic([], [], []), None),
        (Dynamic([], [Symbol("hipMalloc", "hip_4.2")], []), None),
        (
            Dynamic([], [Symbol("hipMalloc", "hip_9.9")], []),
            "libamdhip64.so.7 lacks hipMalloc, version hip_9.9",
        ),
        (
            Dynamic([], [Symbol("hipNew", "hip_4.2")], []),
            "libamdhip64.so.7 lacks hipNew, version hip_4.2",
        ),
        (Dynamic([], [Symbol("ncclNew", "")], []), "librccl.so.1 lacks ncclNew, version none"),
        (
            Dynamic([], [Symbol("hipblasNew", "")], []),
            "libhipblas.so.3 lacks hipblasNew, version none",
        ),
        (Dynamic([], [Symbol("hipfftCreate", "")], []), None),  # of a library that is not here
        (Dynamic(["libc.so.6", "librccl.so.1", "libhipfft.so.0"], [], []), None),
        (Dynamic(["libnew.so.1"], [], []), "a module needs libnew.so.1, which is not known here"),
    ],
)
def test_what_is_lacking_is_named(folder, module, complaint):
    assert check.complaints({"module.so": module}, folder) == ([complaint] if complaint else [])


def test_no_cupy(folder):
    (complaint,) = check.complaints({}, folder)
    assert "install cupy-rocm-7-0" in complaint


def test_what_the_linker_sees(tmp_path):
    """Of a library with versions that needs another one, and of what is no library."""
    sources = {
        "first": ("int one(void) { return 1; } int hidden(void) { return 2; }", []),
        "second": ("int one(void); int two(void) { return one(); }", ["first.so"]),
    }
    (tmp_path / "first.map").write_text("VERSION_1 { global: one; local: *; };")
    for name, (text, libraries) in sources.items():
        (tmp_path / f"{name}.cc").write_text(f'extern "C" {{ {text.replace("void", "")} }}')
        script = ["-Wl,--version-script=first.map"] if name == "first" else []
        _compile(tmp_path, f"{name}.cc", f"{name}.so", *libraries, *script)
    first, second = (dynamic(tmp_path / f"{name}.so") for name in sources)
    assert Symbol("one", "VERSION_1") in first.defined
    assert "hidden" not in {symbol.name for symbol in first.defined}
    assert Symbol("two", "") in second.defined
    assert Symbol("one", "VERSION_1") in second.undefined
    assert "first.so" in second.needed
    with pytest.raises(ValueError, match="is no ELF file"):
        dynamic(tmp_path / "first.cc")


def _compile(folder, source, target, *more):
    command = [build.COMPILER, "-shared", "-fPIC", source, f"-Wl,-soname,{target}", *more]
    subprocess.run([*command, "-o", target], cwd=folder, check=True, timeout=60)


def test_the_program_ends_with_what_it_found(tmp_path):
    """Its exit code is for CI: 1 in an environment without CuPy."""
    script = "import sysconfig, runpy, sys; sysconfig.get_path = lambda _: sys.argv[1];"
    script += "runpy.run_path(sys.argv[2], run_name='__main__')"
    command = [sys.executable, "-c", script, str(tmp_path), str(Path(check.__file__))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "install cupy-rocm-7-0" in done.stdout) == (1, True), done.stderr
