"""The pretended NCCL under sanitizers: ranks are threads, on a double of the runtime."""

import shutil
import subprocess
from pathlib import Path

import pytest

from mpistrat.testing.sets import repeats

NCCL = Path(__file__).parents[1] / "nccl"
HERE = Path(__file__).with_name("nccl_threads")


@repeats()
@pytest.mark.deadline(420)
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_ranks_as_threads(sanitizer, tmp_path):
    program = tmp_path / "ranks"
    sources = [path for path in NCCL.rglob("*.cc") if path.name != "runtime.cc"]
    flags = [
        "-std=c++20",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{NCCL.parent}",
        "-pthread",
    ]
    command = ["g++", *flags, f"-fsanitize={sanitizer}", *sources, *HERE.glob("*.cc")]
    subprocess.run([*command, "-o", program], check=True, timeout=300)
    job = subprocess.run(
        [program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert job.returncode == 0, job.stderr
    assert "all ranks are done" in job.stdout
    assert "Sanitizer" not in job.stderr, job.stderr
