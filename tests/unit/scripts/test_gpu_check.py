"""The parts of scripts/gpu-check, without a GPU: steps, their files, what is missing."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpu_check import figures, machine, plan
from gpu_check.steps import Step, run
from mpistrat.testing.sets import takes_long

ROOT = Path(__file__).parents[3]
PYTHON = sys.executable


def ran(code: str, tmp_path: Path, timeout_s: float = 30, left_s: float = 60, **more):
    step = Step("a step", [PYTHON, "-c", code], timeout_s, **more)
    return run(step, dict(os.environ), tmp_path / "log", left_s)


def test_a_step_passes(tmp_path):
    found = ran("import os; print(os.environ['ONE'])", tmp_path, environment={"ONE": "two"})
    assert (found.outcome, found.is_bad, found.last_lines) == ("passed", False, [])
    assert (tmp_path / "log").read_text() == "two\n"


def test_a_step_fails_and_its_last_lines_are_kept(tmp_path):
    found = ran("print('first'); raise SystemExit(3)", tmp_path, figures=lambda: {"n": 1})
    assert (found.outcome, found.is_bad) == ("failed", True)
    assert (found.reason, found.last_lines) == ("exit status 3", ["first"])
    assert found.figures == {"n": 1}
    assert json.loads(json.dumps(found.record()))["figures"] == {"n": 1}


def test_a_step_without_its_figures_has_failed(tmp_path):
    found = ran("", tmp_path, figures=(tmp_path / "none").read_text)
    assert found.outcome == "failed"
    assert "its figures cannot be read" in found.reason


@takes_long()
@pytest.mark.parametrize(("timeout_s", "left_s"), [(5, 60), (60, 5)])
def test_a_step_is_ended_with_all_that_it_started(tmp_path, timeout_s, left_s):
    child = "import time; time.sleep(60)"
    code = (
        "import subprocess, sys, time;"
        f"print(subprocess.Popen([sys.executable, '-c', {child!r}]).pid, flush=True);"
        "time.sleep(60)"
    )
    begin = time.monotonic()
    found = ran(code, tmp_path, timeout_s, left_s)
    assert time.monotonic() - begin < 30
    assert (found.outcome, found.reason) == ("timed out", "no end after 5 s")
    assert _has_ended(int(found.last_lines[0]))


def _has_ended(process: int) -> bool:
    for _ in range(100):
        try:
            text = Path(f"/proc/{process}/stat").read_text()
        except FileNotFoundError:
            return True
        if text.rpartition(")")[2].split()[0] == "Z":  # its new parent has not asked yet
            return True
        time.sleep(0.1)
    return False


def test_steps_are_skipped_with_a_reason(tmp_path):
    assert ran("", tmp_path, why_not="no tool").reason == "no tool"
    found = ran("", tmp_path, left_s=1)
    assert (found.outcome, found.reason) == ("skipped", "no time is left")
    code = "print('Device not supported'); raise SystemExit(1)"
    found = ran(code, tmp_path, says_it_cannot="Device not supported")
    assert (found.outcome, found.reason) == ("skipped", "it says: Device not supported")
    assert ran("", tmp_path, says_it_cannot="Device").outcome == "passed"


TESTS = """
import pytest
def test_good(): pass
def test_bad(): assert 1 == 2
@pytest.mark.parametrize("n", [1, 2])
def test_skipped(n): pytest.skip("no second GPU")
@pytest.fixture
def broken(): raise OSError("no device")
def test_error(broken): pass
"""


@takes_long()
def test_tests_are_counted_from_the_file_or_the_output(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    report, log = tmp_path / "tests.xml", tmp_path / "log"
    command = [PYTHON, "-m", "pytest", "-v", "-p", "no:cacheprovider", f"--junitxml={report}"]
    environment = {name: text for name, text in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    log.write_text(done.stdout)
    counts = {"passed": 1, "failed": 2, "skipped": 2}
    found = figures.of_tests(report, log)
    assert found["counts"] == counts
    assert any("assert 1 == 2" in text for text in found["failed"].values())
    assert [*found["skipped_because"].values()] == [2]
    report.unlink()  # as if pytest had been ended
    found = figures.of_tests(report, log)
    assert found["counts"] == counts
    assert len(found["failed"]) == 2


def test_tests_of_several_workers_are_counted_from_the_output(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "[gw1] [  3%] PASSED tests/gpu/test_a.py::test_one[2 x 3] \n"
        "[gw0] [ 50%] FAILED tests/gpu/test_b.py::test_two \n"
        "[gw0] [100%] SKIPPED tests/gpu/test_b.py::test_three \n"
    )
    found = figures.of_tests(tmp_path / "none.xml", log)
    assert found["counts"] == {"passed": 1, "failed": 1, "skipped": 1}
    assert [*found["failed"]] == ["tests/gpu/test_b.py::test_two"]


def test_bars_of_a_benchmark_are_told(tmp_path):
    file = tmp_path / "bench.jsonl"
    assert figures.of_benchmark(file) == []
    bar = {"bar": "share of copy", "value": 0.85, "least": 0.9, "met": False}
    record = {"op": "reduce", "what": "4 buffers", "bytes": 64, "ranks": 1, "bars": [bar]}
    file.write_text(json.dumps(record) + "\n")
    [line] = figures.bars(figures.of_benchmark(file))
    assert line == "MISSED share of copy 0.85 (reduce 4 buffers 64 bytes, 1 ranks)"


def a_machine(**changes):
    packages = dict.fromkeys(machine.PACKAGES, "1.0")
    found = {
        "cores": 16,
        "gpu": {"gpu": "NVIDIA H200"},
        "mpi": {"library": "Open MPI"},
        "launcher": {"kind": "openmpi"},
        "packages": packages,
        "nvidia_smi": ["NVIDIA H200, 580.1, 143771 MiB, 0 MiB, 0 %"],
        "compiler": "g++",
        "compute_sanitizer": "/usr/local/cuda/bin/compute-sanitizer",
    }
    return {**found, **changes}


def steps_of(found, tmp_path, *, is_quick=False, is_pretended=False):
    return {
        step.name: step
        for step in plan.steps(found, plan.Choice(is_quick, is_pretended, tmp_path))
    }


def test_nothing_is_missing_on_a_whole_machine(tmp_path):
    assert machine.missing(a_machine()) == []
    steps = steps_of(a_machine(), tmp_path)
    assert [name for name, step in steps.items() if step.why_not and "host" not in name] == []
    assert list(steps)[:3] == ["kernels of the host", "each kernel", "tests"]
    assert {"benchmark on 4 ranks", "memcheck", "racecheck"} <= steps.keys()
    memcheck = steps["memcheck"].command
    assert memcheck[:3] == ["/usr/local/cuda/bin/compute-sanitizer", "--tool", "memcheck"]
    assert Path(memcheck[-1]).is_file()
    tests, of_memory = steps["tests"].command, steps["tests of memory"].command
    assert tests[tests.index("-n") + 1] == "5"
    assert "not measures_memory" in tests
    assert "measures_memory" in of_memory
    assert "xdist" not in of_memory  # they measure what all tests of the GPU take
    for cores, testers in ((2, "3"), (None, "3"), (64, "8")):
        command = steps_of(a_machine(cores=cores), tmp_path)["tests"].command
        assert command[command.index("-n") + 1] == testers
    assert "MPISTRAT_TESTS_WITHOUT_MPI" not in steps["tests"].environment
    assert steps["tests"].environment["MPISTRAT_TESTS_LONG"] == "1"


def test_what_is_missing_is_said_with_its_effect(tmp_path):
    absent = a_machine(
        mpi={"error": "no libmpi"},
        packages={**a_machine()["packages"], "typer": None, "pytest": None},
        compute_sanitizer=None,
    )
    lines = machine.missing(absent)
    assert "typer: not installed; no benchmarks" in lines
    assert "mpi: no libmpi; no jobs of several ranks" in lines
    assert any(line.startswith("compute-sanitizer: ") for line in lines)
    steps = steps_of(absent, tmp_path)
    assert steps["tests"].why_not == "needs pytest"
    assert steps["tests"].environment["MPISTRAT_TESTS_WITHOUT_MPI"] == "1"
    assert steps["benchmark on 1 rank"].why_not == "needs typer"
    assert steps["memcheck"].why_not == "compute-sanitizer is not there"


def test_a_pretended_gpu_is_taken_only_if_asked_for(tmp_path):
    pretended = a_machine(gpu={"gpu": "pretended GPU 0"})
    assert "--pretend" in steps_of(pretended, tmp_path)["tests"].why_not
    steps = steps_of(pretended, tmp_path, is_pretended=True, is_quick=True)
    assert steps["tests"].why_not is None
    assert steps["tests of memory"].why_not == "not in a quick check"
    assert steps["memcheck"].why_not == "it watches real GPUs alone"
    assert "benchmark on 4 ranks" not in steps


def test_tests_that_need_no_device_are_left_out(tmp_path):
    command = steps_of(a_machine(), tmp_path)["tests"].command
    ignored = [Path(one.partition("=")[2]) for one in command if one.startswith("--ignore=")]
    assert all(path.exists() for path in ignored)
    assert ROOT / "tests" / "gpu" / "backends" not in ignored


def test_a_sanitizer_is_found_in_a_toolkit(tmp_path, monkeypatch):
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert machine.sanitizer() == str(tool)


def test_a_sanitizer_is_found_in_a_wheel(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia" / "cu13" / "bin" / "compute-sanitizer"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(machine, "_toolkits", list)
    assert machine.sanitizer() == str(tool)


@pytest.mark.deadline(100)
def test_without_a_gpu_it_says_so_and_writes_what_it_has_seen(tmp_path):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
    out = tmp_path / "out"
    out.mkdir()
    environment["OUT"] = str(out)
    # No time is left for a step, so that nothing is built here.
    options = ["--seconds", "11", "--output", str(tmp_path / "kept"), "--commit", "abc"]
    command = [PYTHON, str(ROOT / "scripts" / "gpu-check"), *options]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "missing: gpu: " in done.stdout
    [kept], [copy] = (tmp_path / "kept").iterdir(), out.iterdir()
    assert kept.name.startswith("gpu-no-gpu-")
    content = json.loads(kept.read_text())
    assert content == json.loads(copy.read_text())
    assert content["commit"] == "abc"
    assert {step["outcome"] for step in content["steps"]} == {"skipped"}
