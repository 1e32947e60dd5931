"""Tell the saves of the driving rank apart: which of them is made by all ranks."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, NamedTuple

from mpistrat.collectives.checking.call_site import caller

__all__ = ["Save"]


class Save(NamedTuple):
    """A save that all ranks make, or the driving one alone.

    Its folder tells nothing: ranks that write nothing often have one of their own, to delete.
    Nor does a checkpoint's number, which the saves of the driving rank alone have raised there.
    Those are other lines of the program.

    Attributes
    ----------
    what
        The call, in words.
    key
        Equal on all ranks in a save of all of them, and there only: the file's name, and the line
        that saves, with the ones that have called it.
    """

    what: str
    key: tuple[str, ...]

    @classmethod
    def of_model(cls, path: Any) -> Save:
        """Return the one that this rank makes now, to a path. **Local.**"""
        return cls(f"saving a model, {path}, at {caller()}", ("model", _name(path), *_lines()))

    @classmethod
    def of_checkpoint(cls, path: Any) -> Save:
        """Return the one that this rank makes now, to a path without or with a number."""
        name = re.sub(r"-\d+$", "", _name(path))
        return cls(f"saving a checkpoint, {path}, at {caller()}", ("checkpoint", name, *_lines()))


def _name(path: Any) -> str:
    """Return the last part of a path; nothing of what is none, such as an open file."""
    is_path = isinstance(path, str | bytes | os.PathLike)
    return os.path.basename(os.fsdecode(path).rstrip("/")) if is_path else ""


def _lines() -> list[str]:
    """Return the functions that are being called, and where they are, up to the program's file.

    Without the names of files: programs may lie in other folders on other machines. What called
    the program, such as a debugger, may be there on one rank only.
    """
    found, frame = [], sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        found.append(f"{code.co_name}:{frame.f_lineno}")
        if code.co_name == "<module>":
            break
        frame = frame.f_back  # type: ignore[assignment]
    return found
