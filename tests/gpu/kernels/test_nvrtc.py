"""The kernels compiled for NVIDIA's GPUs by NVRTC, without one; what is in the machine code.

Needs the extra `test-gpu`: cuda-bindings and nvidia-cuda-{nvrtc,cuobjdump,nvdisasm}.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from helpers.gpu_kernels.instances import instances
from helpers.gpu_kernels.program import CHECKS
from mpistrat.collectives.backends.gpu.kernels import source
from mpistrat.testing.sets import repeats, takes_long

pytestmark = takes_long(unit="file")

try:
    from cuda.bindings import nvrtc

    nvrtc.nvrtcVersion()  # loads the library
except (ImportError, RuntimeError) as reason:
    pytest.skip(f"needs cuda-bindings and NVRTC's wheel: {reason}", allow_module_level=True)

# By default the oldest and the newest.
ARCHITECTURES = ("sm_80", pytest.param("sm_90", marks=repeats()), "sm_100")
# Of 65,536 in a processor, which then holds two blocks of 256 threads, or one_shot's of 512.
MOST_REGISTERS = 128
DEADLINE_S = 120


def _tool(name: str) -> str:
    package = f"nvidia-cuda-{name}"
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"needs {package}")
    return str(next(file.locate() for file in files if file.name == name))


def _output(name: str, *arguments: str | Path) -> str:
    command = [_tool(name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    return done.stdout


def _checked(result):
    error, *values = result
    assert int(error) == 0, error
    return values[0] if values else None


def compiled(text: str, architecture: str) -> bytes:
    """Return the machine code; fail with the compiler's messages, warnings too."""
    program = _checked(nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], []))
    options = [f"--gpu-architecture={architecture}", *source.OPTIONS["nvidia"]]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [one.encode() for one in options])
    log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc.nvrtcGetProgramLog(program, log))
    messages = log.strip(b"\0\n ").decode()
    assert int(error) == 0, messages
    assert not messages
    code = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
    _checked(nvrtc.nvrtcGetCUBIN(program, code))
    return bytes(code)


@cache
def _functions(folder: Path, family: str, architecture: str) -> dict[str, str]:
    """Return the machine code of each kernel of a family, as text."""
    path = folder / f"{family}.{architecture}.cubin"
    path.write_bytes(compiled(source.program(family, instances(family)), architecture))
    listing = _output("nvdisasm", "-c", path)
    parts = re.split(r"^\s*\.section\s+\.text\.(\w+),.*$", listing, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cubins")


@pytest.fixture(params=ARCHITECTURES)
def architecture(request):
    return request.param


@pytest.mark.deadline(DEADLINE_S)
@pytest.mark.parametrize("family", CHECKS)
def test_no_stack_few_registers_wide_accesses(folder, family, architecture):
    functions = _functions(folder, family, architecture)
    assert len(functions) == len(instances(family))
    for name, code in functions.items():
        # Of integers whose mean is float64 a load is narrower than the store.
        assert re.search(r"\b(?:LDG?|STG)\.E\.(?:\w+\.)*128\b", code), name
        assert "SHFL" not in code, name
    usage = _output("cuobjdump", "-res-usage", folder / f"{family}.{architecture}.cubin")
    rows = re.findall(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    assert len(rows) == len(functions)
    for name, (registers, stack, local) in zip(functions, rows, strict=True):
        assert (int(stack), int(local)) == (0, 0), usage
        assert int(registers) <= MOST_REGISTERS, name


@pytest.mark.deadline(DEADLINE_S)
def test_stores_are_wide(folder, architecture):
    wide = r"\bSTG\.E\.128\b"
    for family, name in (
        ("slice_reduce", "slice_reduce_Sum_Half"),
        ("one_shot", "one_shot_Sum_float"),
        ("pieces", "move_pieces"),
        ("cast", "cast_Half_float"),
        ("updates", "update_Adam_float_float"),
        ("scatter_add", "scatter_add_float"),
    ):
        assert re.search(wide, _functions(folder, family, architecture)[f"mpistrat_{name}"]), name


@pytest.mark.deadline(DEADLINE_S)
def test_flags_have_the_scope_of_the_system(folder, architecture):
    for name, code in _functions(folder, "one_shot", architecture).items():
        stores = re.findall(r"\bSTG?\.E\.STRONG\.(\w+)", code)
        loads = re.findall(r"\bLDG?\.E\.STRONG\.(\w+)", code)
        assert set(stores) == {"SYS"}, name
        assert set(loads) == {"SYS"}, name
        assert len(loads) >= 2, name  # the peers' flag, and the host's word
        before = code[: code.index("STRONG.SYS", code.index("STG.E.STRONG.SYS") - 40)]
        assert re.search(r"MEMBAR\.\w+\.SYS", before), f"{name}: a release begins with a fence"
        assert "CCTL.IVALL" in code, f"{name}: an acquire forgets what is in the cache"
        # The peers' slots change while the kernel runs.
        assert not re.search(r"LDG?\.E\.[\w.]*CONSTANT", code), name


@pytest.mark.deadline(DEADLINE_S)
def test_products_and_sums_are_not_fused(folder, architecture):
    functions = _functions(folder, "updates", architecture)
    for rule in ("Descent", "Momentum", "Nesterov"):
        code = functions[f"mpistrat_update_{rule}_float_float"]
        assert "FMUL" in code
        assert "FADD" in code
        assert "FFMA" not in code, rule


@pytest.mark.deadline(DEADLINE_S)
def test_rows_are_not_added_by_atomics(folder, architecture):
    for name, code in _functions(folder, "scatter_add", architecture).items():
        assert not re.search(r"\b(?:ATOM|ATOMG|RED|REDG)\b", code), name


@pytest.mark.deadline(DEADLINE_S)
def test_rows_are_ordered_by_counts_of_whole_numbers(folder, architecture):
    functions = _functions(folder, "row_order", architecture)
    for name, code in functions.items():
        # Names of instructions only: registers and labels have others.
        atomics = re.findall(r"\b(?:ATOM|ATOMG|ATOMS|RED|REDG)\.\S+", code)
        assert atomics, name
        assert not [one for one in atomics if re.search(r"\.B?F\d", one)], atomics
    # What tiles tell each other is seen by all of the GPU, and by no more than that.
    told = re.findall(r"\b(?:LDG?|STG?)\.E\.STRONG\.(\w+)", functions["mpistrat_order_digit"])
    assert set(told) == {"GPU"}


@repeats()
@pytest.mark.deadline(300)
def test_every_op_and_dtype_is_compiled():
    for family in CHECKS:
        compiled(source.program(family, instances(family, are_all=True)), "sm_90")


def test_a_mistake_is_named():
    with pytest.raises(AssertionError, match=r"kernels.cu\(.*totl"):
        compiled("__global__ void broken(int* a) { a[0] = totl; }", "sm_90")
