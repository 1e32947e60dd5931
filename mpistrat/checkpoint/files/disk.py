"""Make, lock and remove the folders and files of checkpoints, so that a crash leaves no part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mpistrat.system.files.atomic_files import sync
from mpistrat.system.files.file_locks import try_to_lock

__all__ = ["alone", "make_folder", "remove_empty", "remove_files"]

_LOCK_S, _NAP_S = 5.0, 0.002


def make_folder(path: Path) -> list[Path]:
    """Make a folder and those above it; return the new ones, the innermost first."""
    new: list[Path] = []
    try:
        for folder in (*reversed(path.parents), path):
            if not folder.is_dir() and _is_made(folder):
                new.insert(0, folder)
                # A new folder is an entry of its parent, which a crash may undo until the parent
                # is synced.
                sync(folder.parent)
    except OSError:
        remove_empty(new)
        raise
    return new


def _is_made(folder: Path) -> bool:
    """Make a folder; return False if another process made it at the same time."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return False
    return True


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes for the length of a block.

    Not for long, and not where the file system has no locks: it is only for tidiness.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # there are no locks here
            try_to_lock(handle, _LOCK_S, _NAP_S)
        yield
    finally:
        os.close(handle)


def remove_empty(folders: list[Path]) -> None:
    """Remove the folders that are empty."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            os.rmdir(folder)


def remove_files(folder: Path, pattern: str) -> None:
    """Remove the files of a folder whose names match."""
    for file in folder.glob(pattern):
        file.unlink(missing_ok=True)
