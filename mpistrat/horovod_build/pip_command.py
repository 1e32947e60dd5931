"""The command line of this environment's pip."""

from __future__ import annotations

import sys

__all__ = ["pip"]


def pip(command: str, *arguments: str) -> list[str]:
    """Return the command line of ``pip wheel`` or ``pip install`` with these arguments."""
    quiet = ("--disable-pip-version-check", "--no-input")
    return [sys.executable, "-m", "pip", command, *quiet, *arguments]
