"""`Rule`: a trap that the lint knows; `Finding`: a place in a program where it is."""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mpistrat.doctor.lint.program import Program

__all__ = ["Finding", "Outcome", "Rule", "Trap"]


class Outcome(enum.Enum):
    """What comes of a trap, in the spelling of the report; the worst first."""

    SILENT = "silently wrong"
    HANGS = "hangs"
    FAILS = "fails"


@dataclass(frozen=True)
class Trap:
    """A place in a program where a rule applies.

    Attributes
    ----------
    node
        The part of the program.
    outcome
        What comes of it.
    happens
        What Horovod does there.
    instead
        What to write in its place.
    """

    node: ast.expr | ast.stmt
    outcome: Outcome
    happens: str
    instead: str


@dataclass(frozen=True)
class Rule:
    """One of the traps that the lint knows.

    Attributes
    ----------
    name
        Its name in reports, and its heading in docs/from-horovod.md.
    find
        Yields the places in a program. Never called for a program without Horovod.
    """

    name: str
    find: Callable[[Program], Iterator[Trap]]


@dataclass(frozen=True)
class Finding:
    """A trap in a file.

    Attributes
    ----------
    file, line, column
        Where it is; the first line and column are 1.
    rule
        The name of the rule.
    what
        The part of the program, on one line.
    outcome, happens, instead
        Those of the trap.
    """

    file: str
    line: int
    column: int
    rule: str
    what: str
    outcome: Outcome
    happens: str
    instead: str
