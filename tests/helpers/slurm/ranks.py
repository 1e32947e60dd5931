"""Command lines of ranks under Slurm, and what they print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["PYTHON", "SHOW", "bin_folder", "places"]

PYTHON = sys.executable
SHOW = (PYTHON, "-m", "helpers.slurm.show_topology")
"""Prints where each rank is; with numbers of tasks by job as JSON, also its role."""


def bin_folder() -> Path:
    """Return the folder of this Python and, if it has one, its mpirun."""
    return Path(sys.executable).parent


def places(printed: str) -> list[dict[str, Any]]:
    """Return what `SHOW` printed, by rank; other lines are passed over."""
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return sorted(lines, key=lambda line: int(line["rank"]))
