"""The whole of scripts/gpu-check, in little, on a pretended GPU."""

import json
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

import cupy

ROOT = Path(__file__).parents[3]
ENDS_S = 400  # of which most is for g++, on a busy machine


@takes_long()
@pytest.mark.skipif(
    b"pretended" not in cupy.cuda.runtime.getDeviceProperties(0)["name"],
    reason="a real GPU is checked by the command itself, not by a test of it",
)
@pytest.mark.deadline(ENDS_S + 20)
def test_a_little_of_each_step(tmp_path):
    options = ["--quick", "--pretend", "--output", str(tmp_path), "--seconds", str(ENDS_S - 20)]
    command = [sys.executable, str(ROOT / "scripts" / "gpu-check"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [file] = tmp_path.iterdir()
    assert file.name.startswith("gpu-pretended-gpu-0-")
    content = json.loads(file.read_text())
    assert content["machine"]["gpu"]["gpu"] == "pretended GPU 0"
    steps = {step["name"]: step for step in content["steps"]}
    ran = ("each kernel", "tests", "benchmark on 1 rank", "benchmark on 2 ranks")
    assert [steps[name]["outcome"] for name in ran] == ["passed"] * 4
    assert steps["tests"]["figures"]["counts"]["passed"] > 0
    for ranks in (1, 2):
        figures = steps[ran[1 + ranks]]["figures"]
        assert {one["ranks"] for one in figures} == {ranks}
        assert all(one["correct"] for one in figures)
    assert {steps[name]["outcome"] for name in ("memcheck", "racecheck")} == {"skipped"}
