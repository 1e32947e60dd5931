"""The steps of the check, in their order: what is worth most comes first."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from gpu_check import figures
from gpu_check.machine import can_run_ranks
from gpu_check.steps import Step, log_name

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PROGRAM = ROOT / "tests" / "gpu" / "hardware" / "each_kernel.py"

# Tests of the pretended runtime, of compilers without a GPU, and of this check itself.
NOT_OF_DEVICES = (
    "tests/gpu/pretend",
    "tests/gpu/hardware",
    "tests/gpu/bench",
    "tests/gpu/kernels/test_amd.py",
    "tests/gpu/kernels/test_nvrtc.py",
    "tests/gpu/kernels/test_on_host.py",
    "tests/gpu/kernels/test_planted_faults.py",
)
_CORES_OF_A_TESTER = 3  # most of a test is the start of ranks, and compilers
_LEAST_TESTERS, _MOST_TESTERS = 3, 8  # whose ranks share a GPU
_MEASURES_MEMORY = "measures_memory"  # the marker of tests that look at free memory
_QUICK_TESTS = ["tests/gpu/kernels/test_loader.py", "-k", "rows or cast"]
_QUICK_KERNELS = ["--bytes", "4KiB", "--buffers", "3", "--variables", "3"]
_QUICK_RANKS = ["--allreduce-bytes", "8,4KiB"]
_TIMES = ["--seconds", "0.25"]  # of each of about 70 rows; making arrays takes as long again
_QUICK_TIMES = ["--rounds", "2", "--seconds", "0.01"]
_LEAST_SETUPTOOLS = 77  # reads the licence in pyproject.toml

# Tools of compute-sanitizer with their time limits, and its exit status where one finds a fault.
_TOOLS = {"memcheck": 100, "synccheck": 60, "racecheck": 80}
_FOUND_STATUS = "86"


@dataclass(frozen=True)
class Choice:
    """What the user wants.

    Attributes
    ----------
    is_quick
        Little of everything, to see whether the check itself works.
    is_pretended
        On pretended GPUs.
    folder
        Where logs and files of steps go.
    """

    is_quick: bool
    is_pretended: bool
    folder: Path


def steps(machine: dict[str, Any], choice: Choice) -> list[Step]:
    """Return all steps, also those that cannot run here, with the reason."""
    return [
        _build(machine),
        _kernels(machine, choice),
        _tests(machine, choice),
        _memory_tests(machine, choice),
        *(
            _benchmark(machine, choice, ranks)
            for ranks in ((1, 2) if choice.is_quick else (1, 2, 4))
        ),
        *(_sanitized(machine, choice, tool) for tool in _TOOLS),
    ]


def _why_no_gpu(machine: dict[str, Any], choice: Choice) -> str | None:
    gpu = machine["gpu"]
    if "error" in gpu:
        return f"no GPU: {gpu['error']}"
    is_pretended = gpu["gpu"].startswith("pretended GPU")
    if is_pretended and not choice.is_pretended:
        return "the GPU is a pretended one; --pretend checks with it"
    return None


def _build(machine: dict[str, Any]) -> Step:
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    environment = {"MPISTRAT_BUILD_KERNELS": "1"}
    return Step("kernels of the host", command, 150, environment, _why_no_build(machine))


def _why_no_build(machine: dict[str, Any]) -> str | None:
    if importlib.util.find_spec("mpistrat._kernels") is not None:
        return "they are there already"
    absent = [name for name in ("nanobind", "setuptools") if not machine["packages"][name]]
    if machine["compiler"] is None:
        absent.append("a C++ compiler with Python's headers")
    if absent:
        return f"needs {', '.join(absent)}; goes on without them"
    version = metadata.version("setuptools")
    if int(version.partition(".")[0]) < _LEAST_SETUPTOOLS:
        return f"needs setuptools {_LEAST_SETUPTOOLS}, here is {version}; goes on without them"
    return None


def _kernels(machine: dict[str, Any], choice: Choice) -> Step:
    quick = ["--quick"] if choice.is_quick else []
    command = [sys.executable, str(PROGRAM), *quick]
    return Step("each kernel", command, 100, why_not=_why_no_gpu(machine, choice))


def _tests(machine: dict[str, Any], choice: Choice) -> Step:
    where = _QUICK_TESTS if choice.is_quick else ["tests/gpu", "-m", f"not {_MEASURES_MEMORY}"]
    options = []
    if machine["packages"]["pytest-xdist"] and not choice.is_quick:
        wanted = (machine["cores"] or 1) // _CORES_OF_A_TESTER
        testers = min(max(wanted, _LEAST_TESTERS), _MOST_TESTERS)
        options = ["-p", "xdist", "-n", str(testers), "--dist", "loadfile"]
    return _pytest(machine, choice, "tests", 220, [*where, *options])


def _memory_tests(machine: dict[str, Any], choice: Choice) -> Step:
    """Run what looks at how much of the GPU's memory is free, while no other test takes any."""
    if choice.is_quick:
        return Step("tests of memory", [], 0, why_not="not in a quick check")
    options = ["tests/gpu", "-m", _MEASURES_MEMORY]
    return _pytest(machine, choice, "tests of memory", 60, options)


def _pytest(
    machine: dict[str, Any], choice: Choice, name: str, limit_s: float, options: list[str]
) -> Step:
    report = choice.folder / f"{log_name(name)}.xml"
    ignored = [f"--ignore={ROOT / path}" for path in NOT_OF_DEVICES]
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, *ignored]
    why_not = _why_no_gpu(machine, choice) or _absent(machine, "pytest", "hypothesis")
    environment = {
        # Kernels are compiled on their first use, by several ranks that share a GPU, and cores.
        "MPISTRAT_TESTS_SLOWER": "3",
        # Here they have a minute more: most long tests are of GPUs that a compiler pretends.
        "MPISTRAT_TESTS_LONG": "0" if choice.is_quick else "1",
        # Those of other projects may be installed here, and none is needed.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    if can_run_ranks(machine):
        environment["MPISTRAT_TESTS_WITHOUT_MPI"] = "1"
    return Step(
        name,
        [*command, f"--junitxml={report}"],
        limit_s,
        environment,
        why_not,
        partial(figures.of_tests, report, choice.folder / f"{log_name(name)}.log"),
    )


def _benchmark(machine: dict[str, Any], choice: Choice, ranks: int) -> Step:
    file = choice.folder / f"bench-{ranks}.jsonl"
    options = ["--gpus", "1", "--json", str(file)]
    quick = [*_QUICK_KERNELS, *_QUICK_RANKS, *_QUICK_TIMES]
    options += quick if choice.is_quick else _TIMES
    limit_s = 130 if ranks == 1 else 70
    program = ["-m", "mpistrat.bench", "gpu", *options]
    why_not = _why_no_gpu(machine, choice) or _absent(machine, "typer", "rich")
    if ranks > 1:
        program = [str(HERE / "on_ranks.py"), str(ranks), str(limit_s - 10), *program]
        why_not = why_not or can_run_ranks(machine)
    return Step(
        f"benchmark on {ranks} rank{'s' if ranks > 1 else ''}",
        [sys.executable, *program],
        limit_s,
        {},
        why_not,
        partial(figures.of_benchmark, file),
    )


def _sanitized(machine: dict[str, Any], choice: Choice, tool: str) -> Step:
    found, why_not = machine["compute_sanitizer"], _why_no_gpu(machine, choice)
    if found is None:
        why_not = why_not or "compute-sanitizer is not there"
    elif choice.is_pretended:
        why_not = "it watches real GPUs alone"
    command = [found or "compute-sanitizer", "--tool", tool, "--error-exitcode", _FOUND_STATUS]
    if tool == "memcheck":
        # Room between allocations, so that no access past an end falls into the next one. Calls
        # that return errors are CuPy's to judge: it asks for what a GPU may not have.
        command += ["--padding", "64", "--report-api-errors", "no"]
    # One launch of each kind is enough of what is slow to watch.
    program = [sys.executable, str(PROGRAM), *([] if tool == "memcheck" else ["--quick"])]
    command += program
    return Step(tool, command, _TOOLS[tool], {}, why_not, says_it_cannot="Device not supported")


def _absent(machine: dict[str, Any], *names: str) -> str | None:
    absent = [name for name in names if machine["packages"][name] is None]
    return f"needs {', '.join(absent)}" if absent else None
