"""Record the lines of a program that use exchanged names, for ``mpistrat run --explain``."""

from __future__ import annotations

from types import FrameType
from typing import NamedTuple

__all__ = ["Use", "found", "note"]

# They ask which class a strategy is of; importlib asks for names that are imported.
_LIBRARIES = {"importlib", "keras", "mpistrat", "tensorflow", "tf_keras"}


class Use(NamedTuple):
    """A place where a program asked for a name.

    Attributes
    ----------
    name
        Such as "tf.distribute.MirroredStrategy".
    ours
        Module and class that it got.
    file, line
        Where.
    """

    name: str
    ours: str
    file: str
    line: int


_found: dict[Use, None] = {}


def note(name: str, ours: str, frame: FrameType) -> None:
    """Record that the code of a frame asked for a name, unless it is a library's. **Local.**"""
    file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
    if module.partition(".")[0] not in _LIBRARIES:
        _found[Use(name, ours, file, frame.f_lineno)] = None


def found() -> list[Use]:
    """Return all places so far, each once, in the order of their first use."""
    return list(_found)
