"""CuPy's CUDA branch on the pretended GPU, where cuda/install.py has built it."""

import os
import subprocess
import sys

import pytest

from gpu.pretend.build import FOLDER
from gpu.pretend.cuda.install import REPOSITORY, why_not
from mpistrat.testing.sets import repeats

pytestmark = [repeats(), pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

TIMEOUT_S = 900  # libraries and kernels are compiled when they are first used

CALLS = """
import cupy, numpy
from cupy.cuda import nccl, runtime
assert not runtime.is_hip
array = cupy.arange(60, dtype=cupy.float16)
assert (int(array.sum()), array.dtype) == (1770, numpy.float16)
assert int(runtime.getDeviceProperties(0)["warpSize"]) == 32
lanes = cupy.zeros(64, cupy.int32)
cupy.RawKernel(
    r'extern "C" __global__ void lanes(int* to) {'
    r' to[threadIdx.x] = __shfl_sync(0xffffffffu, threadIdx.x, 3) + 100 * warpSize; }',
    "lanes", ("--fmad=false", "-ftz=true"))((1,), (64,), (lanes,))
assert lanes.tolist() == [3203] * 32 + [3235] * 32
try:
    cupy.cuda.Stream(non_blocking=True).begin_capture()
except runtime.CUDARuntimeError as error:
    assert "cudaErrorNotSupported" in str(error), error
else:
    raise AssertionError("a stream is captured")
print("done")
"""


def run(*words, **variables):
    command = [sys.executable, FOLDER / "cuda" / "run.py", *words]
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**_clean(), **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def _clean():
    """Return this environment without what is set for the ROCm wheel's libraries."""
    ours = ("PRETEND_", "PYTEST_", "CUPY_", "ROCM_", "LD_LIBRARY_PATH", "MPISTRAT_TESTS_ALL")
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)}


def test_every_symbol_is_there():
    done = subprocess.run(
        [sys.executable, FOLDER / "cuda" / "check.py"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all symbols of" in done.stdout


def test_cupy_takes_its_branch_for_cuda():
    done = run("python", "-c", CALLS, PRETEND_MISSING="error")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("part", ["kernels/test_loader.py", "backends/test_allreduce_many.py"])
def test_some_of_the_tests_of_gpus(part):
    done = run("python", "-m", "pytest", "-q", f"tests/gpu/{part}", PRETEND_GPUS="2")
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
