"""Replace files atomically: written under a temporary name, flushed to the disk, renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["beside", "replace_whole", "sync"]


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a new empty file in the folder of `path`, to be written and renamed. **Local.**

    Its name, ``.<name>.<digits>``, is that of no other. It is removed at the end of the block if
    it still has it.

    Raises
    ------
    OSError
        It cannot be made.
    """
    own = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        own.touch(exist_ok=False)
        yield own
    finally:
        if own.exists():
            own.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_whole(path: Path, data: bytes) -> None:
    """Replace a file's content atomically, also if the machine crashes.

    Nothing is left behind if that fails.
    """
    with beside(path) as own:
        with own.open("wb") as file:
            file.write(data)
            # Flushed before the rename: after a crash the path could name an empty file.
            file.flush()
            os.fsync(file.fileno())
        own.replace(path)
    # The rename changes the folder, which has to reach the disk, too.
    sync(path.parent)
