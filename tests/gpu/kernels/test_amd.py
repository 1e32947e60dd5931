"""The kernels compiled for AMD's GPUs by clang, without one or ROCm; what is in the machine code.

Needs a clang++ that knows AMD's targets (15 or later): in PATH or named by MPISTRAT_CLANG.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from helpers.gpu_kernels.instances import instances
from helpers.gpu_kernels.program import CHECKS
from mpistrat.collectives.backends.gpu.kernels import source

ARCHITECTURES = ("gfx90a", "gfx942")
DEADLINE_S = 120


@cache
def _compiler() -> list[str]:
    named = os.environ.get("MPISTRAT_CLANG", "")
    versions = [f"clang++-{version}" for version in range(25, 14, -1)]
    for command in map(shlex.split, [named, "clang++", "amdclang++", *versions]):
        if command and shutil.which(command[0]):
            targets = subprocess.run(
                [*command, "--print-targets"],
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            if "amdgcn" in targets.stdout:
                return command
    pytest.skip("found no clang++ for AMD's GPUs, in PATH or by MPISTRAT_CLANG")


@cache
def _assembly(folder: Path, family: str, architecture: str) -> str:
    """Return the machine code of a family's kernels as text; no warning is allowed."""
    path = folder / f"{family}.hip"
    path.write_text(source.program(family, instances(family)))
    target = folder / f"{family}.{architecture}.s"
    options = [
        *("-x", "hip", "--cuda-device-only", f"--offload-arch={architecture}"),
        *("-nogpulib", "-nogpuinc", "-O3", "-Wall", "-Wextra", "-Werror"),
        *source.OPTIONS["amd"],
        *("-include", str(Path(__file__).with_name("amd_prelude.h"))),
        *("-S", "-o", str(target), str(path)),
    ]
    done = subprocess.run(
        [*_compiler(), *options],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target.read_text()


def _without_loops_over_lanes(code: str) -> str:
    """Leave out clang's loops before atomics, which take lanes from the mask of active ones."""
    lane = r"(s_ff1_i32_b64 (s\d+), s\[\d+:\d+\]\n(?:(?!.*\b\2, ).*\n){0,4}?\s*)"
    return re.sub(lane + r"v_readlane_b32 .*, \2\b", r"\1", code)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("amd")


@pytest.mark.deadline(DEADLINE_S)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("family", CHECKS)
def test_no_stack_and_wide_accesses(folder, family, architecture):
    code = _assembly(folder, family, architecture)
    sizes = re.findall(r"\.private_segment_fixed_size:\s*(\d+)", code)
    assert len(sizes) == len(instances(family))
    assert set(sizes) == {"0"}
    assert set(re.findall(r"\.vgpr_spill_count:\s*(\d+)", code)) == {"0"}
    assert re.search(r"\b(?:global|flat)_load_dwordx4\b", code)
    assert re.search(r"\b(?:global|flat)_store_dwordx4\b", code)
    # No lanes are named, which are 64 here and 32 elsewhere.
    named = r"\bds_b?permute|\bv_readlane|\b\w+_dpp\b"
    assert not re.search(named, _without_loops_over_lanes(code))


@pytest.mark.deadline(DEADLINE_S)
def test_flags_have_the_scope_of_the_system(folder):
    code = _assembly(folder, "one_shot", "gfx90a")
    # To and from memory that other GPUs see: nothing in the second-level cache stands for it.
    assert "buffer_wbl2" in code
    assert "buffer_invl2" in code
    code = _assembly(folder, "one_shot", "gfx942")
    assert re.search(r"buffer_wbl2 sc0 sc1", code)
    assert re.search(r"buffer_inv sc0 sc1", code)
    assert re.search(r"global_load_dword v\d+, .* sc0 sc1", code)
    assert re.search(r"global_store_dword .* sc0 sc1", code)


@pytest.mark.deadline(DEADLINE_S)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rows_are_not_added_by_atomics(folder, architecture):
    code = _assembly(folder, "scatter_add", architecture)
    assert not re.search(r"\b(?:global|flat)_atomic_", code)
