"""The program for compute-sanitizer is right itself: it ends well, and sees what is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

from mpistrat.collectives.arrays import gpu_devices
from mpistrat.errors import BackendUnavailableError
from mpistrat.testing.sets import takes_long

try:
    gpu_devices.require(["GPU:0"])
except BackendUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

PROGRAM = Path(__file__).with_name("each_kernel.py")
ENDS_S = 150  # kernels are compiled on their first use, on a busy machine
FAMILIES = ["slices", "one_shots", "moves", "casts", "rules", "tables"]
# One element more than asked for, past the end of the last array and of its memory.
ONE_TOO_MANY = """
import runpy, sys
from mpistrat.collectives.backends.gpu.kernels import movement
def flat(arrays, address, *, into_arrays, plain=movement._flat):
    pieces = plain(arrays, address, into_arrays=into_arrays)
    pieces["row_bytes"][-1] += 4096
    return pieces
movement._flat = flat
sys.argv[:] = [{program!r}, "--quick"]
runpy.run_path({program!r}, run_name="__main__")
"""


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=ENDS_S, check=False)


@takes_long()
@pytest.mark.deadline(ENDS_S + 10)
def test_all_families_are_right() -> None:
    done = run(str(PROGRAM), "--quick")
    assert done.stdout.splitlines() == [f"{name}: right" for name in FAMILIES], done.stderr
    assert done.returncode == 0


@takes_long()
@pytest.mark.deadline(ENDS_S + 10)
def test_an_access_past_an_end_is_not_right() -> None:
    done = run("-c", ONE_TOO_MANY.format(program=str(PROGRAM)))
    assert done.returncode != 0
    assert "moves: right" not in done.stdout
