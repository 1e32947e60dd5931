"""Run a program whose messages are counted, and read the counts."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mpistrat.testing.launcher import find_launcher, run_job

__all__ = ["Phase", "build", "counted_job"]

_FOLDER = Path(__file__).parent
_FLAGS = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
_COMPILE_S = 120


@dataclass(frozen=True)
class Phase:
    """What the ranks of a job sent in one phase.

    Attributes
    ----------
    ranks
        The counts by name, as interposer/counts.c writes them, of each rank that had this phase.
    """

    ranks: tuple[Mapping[str, Any], ...]

    def most(self, name: str) -> int:
        """Return the count of the rank that has most."""
        return max(int(one[name]) for one in self.ranks)

    def total(self, name: str) -> int:
        """Return the sum over all ranks."""
        return sum(int(one[name]) for one in self.ranks)

    def collectives(self) -> dict[str, tuple[int, int]]:
        """Return the calls of MPI's own collectives, and their bytes, on the rank with most."""
        names = {name for one in self.ranks for name in one["collectives"]}
        return {name: self._of(name) for name in sorted(names)}

    def _of(self, name: str) -> tuple[int, int]:
        found = [one["collectives"].get(name, [0, 0]) for one in self.ranks]
        return max(calls for calls, _ in found), max(nbytes for _, nbytes in found)


@functools.cache
def build() -> Path:
    """Compile the interposer; skip the test where that is impossible."""
    launcher = find_launcher().path
    compiler = shutil.which("mpicc", path=str(Path(launcher).parent)) or shutil.which("mpicc")
    if compiler is None or not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("messages are counted by a C library, which needs mpicc and a C compiler")
    target = Path(tempfile.mkdtemp(prefix="message-counts-"), "count_messages.so")
    sources = sorted(map(str, (_FOLDER / "interposer").glob("*.c")))
    command = [compiler, *_FLAGS, *sources, "-o", str(target), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    if "mpi.h" in done.stderr and "No such file" in done.stderr:
        pytest.skip(f"messages are counted by a C library, which needs MPI's header: {compiler}")
    assert done.returncode == 0, done.stderr
    return target


def counted_job(
    argv: Sequence[str],
    ranks: int,
    node_size: int,
    folder: Path,
    timeout_s: float,
    *,
    is_to_fail: bool = False,
) -> dict[str, Phase]:
    """Run a Python program on `ranks` ranks, of which each `node_size` pretend to be a node.

    Returns the phases in their order; those named "between" are left out. Where the job is to
    fail, the last phase is known of the rank that aborts it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(_FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")])
    counted = {
        "LD_PRELOAD": str(build()),
        "MESSAGE_COUNTS": str(folder),
        "MPISTRAT_NODE_SIZE": str(node_size),
        "PYTHONPATH": path,
    }
    result = run_job(argv, ranks, timeout_s, env=counted)
    if is_to_fail:
        assert result.returncode != 0, result.output
        assert not result.timed_out, result.output
    else:
        result.check()
    files = [folder / f"rank-{rank}.jsonl" for rank in range(ranks)]
    rows = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    names = dict.fromkeys(row["phase"] for of in rows for row in of)
    return {name: _of(rows, name) for name in names if name != "between"}


def _of(rows: Sequence[Sequence[Mapping[str, Any]]], name: str) -> Phase:
    return Phase(tuple(one for of in rows for one in of if one["phase"] == name))
