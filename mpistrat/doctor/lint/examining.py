"""Look for all traps in programs; a file that cannot be read is a result, too."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpistrat.doctor.lint.finding import Finding, Rule, Trap
from mpistrat.doctor.lint.program import Program, read
from mpistrat.doctor.lint.rules import RULES

__all__ = ["Examined", "examine"]

_PYTHON = ".".join(map(str, sys.version_info[:2]))
_LONGEST = 60  # characters of a program that a finding quotes


@dataclass(frozen=True)
class Examined:
    """What was found in a file.

    Attributes
    ----------
    file
        Its name.
    findings
        In the order of the source.
    uses_horovod
        Whether it uses Horovod for TensorFlow at all.
    is_legacy
        Whether it asks for Keras 2, which has fewer traps.
    error
        Why it could not be read, or "".
    """

    file: str
    findings: tuple[Finding, ...] = ()
    uses_horovod: bool = False
    is_legacy: bool = False
    error: str = ""


def examine(names: Sequence[str]) -> list[Examined]:
    """Return what was found in each file, and in each Python file of a folder."""
    return [_examined(file) for name in names for file in _files(name)]


def _files(name: str) -> Iterator[str]:
    folder = Path(name)
    if folder.is_dir():
        files = sorted(map(str, folder.rglob("*.py")))
        yield from files or [name]
    else:
        yield name


def _examined(file: str) -> Examined:
    if os.path.isdir(file):
        return Examined(file, error="is a folder without Python files (*.py)")
    try:
        return _found_in(file)
    except OSError as error:
        return Examined(file, error=f"cannot be read: {error.strerror or error}")
    except SyntaxError as error:
        return Examined(file, error=f"is not Python {_PYTHON}: {_told(error)}")
    except ValueError as error:
        return Examined(file, error=f"is not Python: {error}")
    except RecursionError:
        return Examined(file, error="has an expression that is nested too deeply")


def _found_in(file: str) -> Examined:
    program = read(file, os.environ)
    if not program.uses_horovod:
        return Examined(file)
    found = [_finding(program, rule, trap) for rule in RULES for trap in rule.find(program)]
    kept = [one for one in found if not _is_allowed(program, one)]
    kept.sort(key=lambda one: (one.line, one.column))
    return Examined(file, tuple(kept), True, program.is_legacy)


def _told(error: SyntaxError) -> str:
    return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg


def _is_allowed(program: Program, finding: Finding) -> bool:
    """Tell whether the line ends with ``# mpistrat: allow`` and the name of the rule."""
    _, is_there, names = program.lines[finding.line - 1].partition("# mpistrat: allow ")
    return bool(is_there) and finding.rule in names.replace(",", " ").split()


def _finding(program: Program, rule: Rule, trap: Trap) -> Finding:
    node = trap.node
    what = program.source(node)
    what = what if len(what) <= _LONGEST else what[: _LONGEST - 3] + "..."
    return Finding(
        program.file,
        node.lineno,
        node.col_offset + 1,
        rule.name,
        what,
        trap.outcome,
        trap.happens,
        trap.instead,
    )
