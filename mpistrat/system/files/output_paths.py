"""Look at the paths that users give for output, before there is anything to write."""

from __future__ import annotations

from pathlib import Path

__all__ = ["is_same", "why_no_file"]


def why_no_file(path: Path) -> str | None:
    """Return why no file can be at a path, and what to do; or None. **Local.**"""
    if not path.absolute().parent.is_dir():
        return f"there is no folder {path.parent}; make it first"
    return "it is a folder; expected a file" if path.is_dir() else None


def is_same(one: Path, other: Path) -> bool:
    """Tell whether two paths are one file that exists, by links too. **Local.**"""
    return one.exists() and other.exists() and one.samefile(other)
