"""Import libraries in a child process, and watch their time and the CPU mask that they leave."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass

from mpistrat.doctor.not_here import NotHere

__all__ = ["Import", "probe"]

# The child is no rank: a library that starts MPI would introduce it as one.
_IDENTITY = ("PMI_", "PMIX_", "OMPI_", "PALS_", "FLUX_", "MPI_LOCAL", "HYDI_", "HYDRA_", "SLURM_")
_PROGRAM = """
import json, os, sys, time
names, mask = sys.argv[1].split(","), json.loads(sys.argv[2])
os.sched_setaffinity(0, mask)
for name in names:
    begin, error = time.monotonic(), ""
    try:
        __import__(name)
    except Exception as reason:
        error = f"{type(reason).__name__}: {reason}"
    took_s = time.monotonic() - begin
    mask = sorted(os.sched_getaffinity(0))
    print(json.dumps(["imported", name, took_s, mask, error]), flush=True)
"""


@dataclass(frozen=True)
class Import:
    """An import: its time, the CPU mask after it, and its error, or ""."""

    name: str
    duration_s: float
    mask: frozenset[int]
    error: str = ""


@functools.cache
def probe(names: tuple[str, ...], mask: frozenset[int], timeout_s: float) -> tuple[Import, ...]:
    """Import modules one after the other, in a process that begins with a CPU mask.

    Raises
    ------
    NotHere
        It did not end in time, or no process could be started.
    """
    command = [sys.executable, "-c", _PROGRAM, ",".join(names), json.dumps(sorted(mask))]
    try:
        done = subprocess.run(
            command,
            env=_environment(os.environ.keys()),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise NotHere(f"importing {', '.join(names)} took more than {timeout_s:g} s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith('["imported"')]
    return tuple(
        Import(name, took_s, frozenset(after), error)
        for _, name, took_s, after, error in map(json.loads, lines)
    )


def _environment(names: Collection[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if not name.startswith(_IDENTITY)}
