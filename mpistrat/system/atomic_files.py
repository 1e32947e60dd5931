"""Write a file under a temporary name, to replace another one atomically."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["beside"]


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
