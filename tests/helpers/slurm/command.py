"""Run ``mpistrat slurm`` as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["PLAIN", "mpistrat_slurm"]

PLAIN = {"COLUMNS": "200", "TERM": "dumb"}
_COLORS = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS")


def mpistrat_slurm(
    *arguments: str,
    folder: Path,
    timeout_s: float = 60,
    variables: Mapping[str, str | None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder; a variable that is None is taken away."""
    environment = {name: value for name, value in os.environ.items() if name not in _COLORS}
    environment |= PLAIN | {"XDG_CONFIG_HOME": str(folder / "config")}
    for name, value in (variables or {}).items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return subprocess.run(
        [sys.executable, "-m", "mpistrat", "slurm", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=folder,
        env=environment,
        check=False,
    )
