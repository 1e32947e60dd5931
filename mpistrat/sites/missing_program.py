"""Tell that the file of a job's program is missing, which the job would find out hours later."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from mpistrat.sites.rendering.options import Options

__all__ = ["notices_of_program"]

_PYTHON = re.compile(r"(.*/)?python[0-9.]*")


def notices_of_program(options: Options) -> Iterator[str]:
    """Yield that the program's file is not there, as far as its words tell. **Local.**

    A job starts in the folder from which it is submitted. What an image has is not known.
    """
    file = _file(options.program)
    if file is None or options.container is not None or os.path.exists(file):
        return
    yield f"the program {file!r} is not there, seen from {os.getcwd()}{_hint(file)}"


def _file(program: Sequence[str]) -> str | None:
    """Return the file that the program is; None for modules, options and commands in PATH."""
    words = program[1:] if program and _PYTHON.fullmatch(program[0]) else program
    word = words[0] if words else "-"
    is_python = words is not program or word.endswith(".py")
    is_file = is_python or "/" in word or len(word.split()) > 1
    return word if is_file and not word.startswith("-") else None


def _hint(file: str) -> str:
    if len(file.split()) > 1:
        return "; each of its arguments is a word of its own: -- train.py --epochs 3"
    if file.startswith("~"):
        return "; `~` is expanded by your shell only without quotes"
    return ""
