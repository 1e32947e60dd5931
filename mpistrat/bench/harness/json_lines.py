"""Write a benchmark's JSON lines, each with the date, versions, commit and host."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import mpistrat
from mpistrat.errors import UsageError
from mpistrat.system.files.output_paths import why_no_file

__all__ = ["check_can_append", "facts", "write_lines"]


@cache
def facts() -> dict[str, Any]:
    """Return date, versions and commit of a run, and the machine's model but not its name."""
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "mpistrat": mpistrat.__version__,
        "git": _git_hash(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        **_mpi_versions(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "host": _processor(),
    }


def check_can_append(path: Path) -> None:
    """Raise `UsageError` if a file cannot be appended to. **Local.**"""
    reason = why_no_file(path)
    if reason is None and not os.access(
        path if path.exists() else path.absolute().parent, os.W_OK
    ):
        reason = "it cannot be written here; give another name"
    if reason:
        raise UsageError(f"cannot write {path}: {reason}")


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Append each record, with the facts, to a file as one line of JSON. **Local.**"""
    shared = facts()
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({**record, **shared}) + "\n" for record in records)


def _processor() -> str:
    """Return the name of the processor's model."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        text = ""
    models = (line.partition(":")[2] for line in text.splitlines() if line[:10] == "model name")
    return next(models, "").strip() or platform.processor() or platform.machine()


def _mpi_versions() -> dict[str, str | None]:
    try:
        import mpi4py
        from mpi4py import MPI
    except (ImportError, RuntimeError):  # no MPI library: one process still works
        return {"mpi4py": None, "mpi": None}
    first_line = MPI.Get_library_version().splitlines()[0]
    return {"mpi4py": mpi4py.__version__, "mpi": " ".join(first_line.strip("\0").split())}


def _git_hash() -> str | None:
    """Return the commit that this code is of, with -dirty if it was changed; None if unknown."""
    file = Path(__file__)
    # An installed package may lie within a checkout of something else.
    is_tracked = _git(file.parent, "ls-files", "--error-unmatch", file.name)
    return is_tracked and _git(
        file.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"
    )


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
