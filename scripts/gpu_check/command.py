"""The command line of ``scripts/gpu-check``: look, run the steps, print and write the results."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpu_check import figures, machine, wheels
from gpu_check.plan import ROOT, Choice, steps
from gpu_check.steps import Outcome, log_name, run

_PRINTED_LINES = 120
_RESERVE_S = 10.0  # of the whole: to write the file
_DESCRIPTION = """Check mpistrat on this machine's GPU: all tests that need one, the kernels under
compute-sanitizer, and the benchmark, each with a time limit; nothing is installed and no network
is used. Steps whose tools are missing are skipped with a line, and a failed step does not end the
others. The results go to one JSON file, and to $OUT too where that is a folder. Exit status 0: all
that ran has passed; 1: some has not; 2: there is no GPU."""


def main() -> int:
    """Run the check; return the exit status."""
    begin = time.monotonic()
    options = _parser().parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mpistrat-gpu-check-"))
    if options.wheels is not None:
        _again_with(wheels.add(options.wheels.resolve(), folder))
    environment = _environment(folder)
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))  # to ask what is there; nothing of it is imported
    found = machine.look(environment)
    print(json.dumps(found, indent=1))
    for line in machine.missing(found):
        print(f"missing: {line}")
    choice = Choice(options.quick, options.pretend, folder)
    outcomes = []
    for step in steps(found, choice):
        left_s = options.seconds - _RESERVE_S - (time.monotonic() - begin)
        print(f"\n==> {step.name}", flush=True)
        log = folder / f"{log_name(step.name)}.log"
        outcomes.append(run(step, environment, log, left_s))
        _tell(outcomes[-1], log)
    _write(found, options, outcomes)
    _conclude(outcomes)
    if "error" in found["gpu"]:
        return 2
    return 1 if any(one.is_bad for one in outcomes) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=_DESCRIPTION)
    parser.add_argument(
        "--seconds", type=float, default=540, help="time for everything (default: %(default)s)"
    )
    parser.add_argument(
        "--output", type=Path, default=None, help="folder of the file (default: benchmarks/)"
    )
    parser.add_argument(
        "--wheels",
        type=Path,
        default=None,
        help="folder of wheels to use beside what is installed",
    )
    parser.add_argument(
        "--commit", default=None, help="of the sources, where they are no git checkout"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a little of each step: does the check itself work?"
    )
    parser.add_argument(
        "--pretend",
        action="store_true",
        help="take a pretended GPU (tests/gpu/pretend/run.py PYTHON scripts/gpu-check --pretend)",
    )
    return parser


def _again_with(python: Path) -> None:
    """Start this command again by another Python, without the option that has led to it."""
    given = sys.argv[1:]
    for index, argument in enumerate(given):
        if argument == "--wheels":
            given[index : index + 2] = []
            break
        if argument.startswith("--wheels="):
            given[index : index + 1] = []
            break
    # An mpirun among the wheels is found beside the interpreter.
    command = [str(python), str(ROOT / "scripts" / "gpu-check"), *given]
    os.execve(python, command, {**os.environ, **wheels.variables(python)})


def _environment(folder: Path) -> dict[str, str]:
    """Return the variables of all steps: this checkout first, nothing installed."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        "CUPY_CACHE_DIR": str(folder / "kernels"),
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
    }


def _tell(outcome: Outcome, log: Path) -> None:
    """Print the end of a step's output, and how it ended."""
    if log.exists():
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print("\n".join(lines[-_PRINTED_LINES:]))
    reason = f": {outcome.reason}" if outcome.reason else ""
    print(f"<== {outcome.name}: {outcome.outcome} in {outcome.seconds} s{reason}", flush=True)


def _write(found: dict[str, Any], options: argparse.Namespace, outcomes: list[Outcome]) -> None:
    """Write the file, and a copy for machines whose files are collected from $OUT."""
    now = datetime.now(timezone.utc)
    content = {
        "date": now.isoformat(timespec="seconds"),
        "commit": options.commit or _commit(),
        "is_quick": options.quick,
        "machine": found,
        "missing": machine.missing(found),
        "steps": [one.record() for one in outcomes],
    }
    text = json.dumps(content, indent=1) + "\n"
    device = re.sub(r"[^a-z0-9]+", "-", found["gpu"].get("gpu", "no gpu").lower())
    folders = [options.output or ROOT / "benchmarks"]
    if os.environ.get("OUT") and Path(os.environ["OUT"]).is_dir():
        folders.append(Path(os.environ["OUT"]))
    for folder in folders:
        print(f"\n{_written(text, folder, f'gpu-{device}-{now:%Y-%m-%d}')}")


def _written(text: str, folder: Path, name: str) -> str:
    """Write a file into a folder; return where, or why it could not be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _free_name(folder, name)
        file.write_text(text, encoding="utf-8")
    except OSError as error:  # a checkout that cannot be written to: the others are
        return f"not written: {error}"
    return f"written: {file}"


def _free_name(folder: Path, name: str) -> Path:
    """Return a name that no file has: several checks of a day are kept."""
    names = [name, *(f"{name}-{number}" for number in range(2, 1000))]
    files = (folder / f"{one}.json" for one in names)
    return next(file for file in files if not file.exists())


def _commit() -> str | None:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(
            [*command, "--exclude=*"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _conclude(outcomes: list[Outcome]) -> None:
    """Print a short table last: output may be cut at its beginning."""
    print()
    for one in outcomes:
        if one.name.startswith("benchmark") and one.figures:
            print("\n".join(figures.bars(one.figures)))
    for one in outcomes:
        is_of_tests = one.name.startswith("tests") and one.figures
        counts = one.figures["counts"] if is_of_tests else ""
        reason = one.reason or ""
        print(f"{one.outcome:>9}  {one.name}  {one.seconds} s  {counts} {reason}".rstrip())
        if is_of_tests:
            for name in one.figures["failed"]:
                print(f"           {name}")
