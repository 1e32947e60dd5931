"""Read and append the points of result files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mpistrat.bench.results.point import Point, Setup
from mpistrat.errors import UsageError
from mpistrat.system.files.output_paths import is_same

__all__ = ["FACTS", "append_point", "distinct", "read_points"]

FACTS = ("date", "mpistrat", "git", "python", "numpy", "mpi4py", "mpi", "machine", "cores", "host")

_DIGITS = 18  # of an integer
_DEEPEST = 20  # lists and mappings in each other
_TOO_DEEP = f"nested more than {_DEEPEST} times; expected a line of bench scale, or of --json"
_SURROGATE = "\\ud"


def append_point(path: Path, point: Point) -> None:
    """Append a point to a file as one line, which is there whole or, after a crash, last."""
    line = point.model_dump_json().encode() + b"\n"
    with path.open("ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                line = b"\n" + line
        file.write(line)


def distinct(paths: Iterable[Path]) -> list[Path]:
    """Return files without those that are there before, by another name or link, too."""
    found: list[Path] = []
    for path in paths:
        if path not in found and not any(is_same(path, one) for one in found):
            found.append(path)
    return found


def read_points(paths: Iterable[Path]) -> list[Point]:
    """Return the points of files, in their order.

    Lines that ``mpistrat bench CASE --json`` wrote are read, too: those of one run, which follow
    each other, become one point.

    Raises
    ------
    UsageError
        A file cannot be read, or a line is neither a point nor a case's; the message names both.
        A line that a crash cut short is left out.
    """
    return [point for path in paths for point in _points(path)]


def _points(path: Path) -> Iterator[Point]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}; expected a file of results") from error
    lines = [_parsed(path, number, line) for number, line in enumerate(text.split("\n"), 1)]
    found = [one for one in lines if one is not None]
    for (is_point, _), group in groupby(found, key=lambda one: _run_of(one[1])):
        members = list(group)
        if is_point:
            yield from (_point(path, number, line) for number, line in members)
        else:
            yield _of_case(path, members)


def _parsed(path: Path, number: int, line: str) -> tuple[int, dict[str, Any]] | None:
    if not line.strip():
        return None
    try:
        value = json.loads(line, parse_int=_integer)
    except json.JSONDecodeError as error:
        if line.startswith("{"):
            return None  # a crash cut it short; another run then began a new line
        raise _no_result(path, number, line) from error
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{path}:{number}: {_told(error)}") from error
    if isinstance(value, (dict, list)) and _is_deeper(value, _DEEPEST):
        raise UsageError(f"{path}:{number}: {_TOO_DEEP}")
    if _SURROGATE in line.lower():  # half of a character, which no file can hold
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    if not isinstance(value, dict) or not ("format" in value or "case" in value):
        raise _no_result(path, number, line)
    return number, value


def _no_result(path: Path, number: int, line: str) -> UsageError:
    return UsageError(
        f"{path}:{number}: {line[:60]!r} is no result; expected a line of bench scale, or one"
        " that a case wrote with --json"
    )


def _told(error: Exception) -> str:
    return _TOO_DEEP if isinstance(error, RecursionError) else str(error)


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(
            f"{digits[:20]}... has {len(digits)} digits; expected at most {_DIGITS}, as a case"
            " writes"
        )
    return int(digits)


def _is_deeper(value: Any, most: int) -> bool:
    """Return whether lists and mappings are in each other more than `most` times."""
    level = [value]
    for _ in range(most):
        inner = [list(one.values() if isinstance(one, dict) else one) for one in level]
        level = [one for members in inner for one in members if isinstance(one, (dict, list))]
        if not level:
            return False
    return True


def _run_of(line: dict[str, Any]) -> tuple[bool, Any]:
    """Return whether a line is a point, and of other lines what those of one run share."""
    if "format" in line:
        return True, None
    return False, [line.get(key) for key in ("case", "ranks", "nodes", *FACTS)]


def _point(path: Path, number: int, line: dict[str, Any]) -> Point:
    try:
        return Point.model_validate(line)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(one) for one in first["loc"])
        raise UsageError(f"{path}:{number}: {place}: {first['msg']}") from error


def _of_case(path: Path, members: list[tuple[int, dict[str, Any]]]) -> Point:
    number, first = members[0]
    facts = {key: first[key] for key in FACTS if key in first}
    records = tuple({k: v for k, v in one.items() if k not in facts} for _, one in members)
    setup = {
        "case": first["case"],
        "ranks": first.get("ranks", 1),
        "nodes": first.get("nodes", 1),
    }
    try:
        return Point(setup=Setup.model_validate(setup), records=records, facts=facts)
    except ValidationError as error:
        raise UsageError(f"{path}:{number}: {error.errors()[0]['msg']}") from error
