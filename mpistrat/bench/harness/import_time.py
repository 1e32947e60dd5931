"""Measure what ``import mpistrat`` costs on top of ``import numpy``, and what it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from mpistrat.bench.harness.timing import Timing

__all__ = ["PROGRAMS", "Import", "measure_imports"]

PROGRAMS = {
    "numpy": "import numpy",
    "numpy, mpistrat": "import numpy, mpistrat",
    "numpy, mpistrat, a strategy": "import numpy, mpistrat; mpistrat.MirroredStrategy",
}
"""The timed programs; mpistrat loads names when they are first used, hence the last one."""

_CHILD = """
import json, sys, time
before = set(sys.modules)
start = time.perf_counter()
exec(sys.argv[1])
seconds = time.perf_counter() - start
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps([seconds, sorted(new - set(sys.stdlib_module_names) - {"mpistrat"})]))
"""


@dataclass(frozen=True)
class Import:
    """The import time of one program, and the packages that it loaded.

    Attributes
    ----------
    timing
        Of its import statements, without the start of the interpreter.
    packages
        The third-party packages that it loaded.
    """

    timing: Timing
    packages: tuple[str, ...]


def measure_imports(rounds: int, programs: Mapping[str, str] = PROGRAMS) -> dict[str, Import]:
    """Run each program in a new interpreter, in turn, `rounds` times. **Local.**

    One round before the first is not counted: it fills the caches of files.
    """
    times: dict[str, list[float]] = {name: [] for name in programs}
    packages: dict[str, tuple[str, ...]] = {}
    for round_ in range(-1, rounds):
        for name, program in programs.items():
            seconds, loaded = _run(program)
            packages[name] = tuple(loaded)
            if round_ >= 0:
                times[name].append(seconds * 1e6)
    return {name: Import(Timing(tuple(times[name])), packages[name]) for name in programs}


def _run(program: str) -> tuple[float, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, program], capture_output=True, text=True, check=True
    )
    seconds, loaded = json.loads(done.stdout)
    return float(seconds), loaded
