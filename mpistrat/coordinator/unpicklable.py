"""Find the part of a function or an object that cannot be pickled, for messages."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import reprlib
import types
from collections.abc import Iterator
from typing import Any

from mpistrat.collectives.pickling import pickled

__all__ = ["unpicklable_part"]

_DEEPEST = 5


def unpicklable_part(value: Any) -> str:
    """Return the path to what cannot be pickled in `value`, or nothing if it is `value` itself."""
    path, seen = "", {id(value)}
    for _ in range(_DEEPEST):
        found = _first_that_stays(value, seen)
        if found is None:
            break
        path, value = path + found[0], found[1]
        seen.add(id(value))
    if path.startswith("["):
        path = f"its {path}"
    return path and f"{path.removeprefix('.')}, of type {type(value).__name__}"


def _first_that_stays(value: Any, seen: set[int]) -> tuple[str, Any] | None:
    """Return the first part that cannot be pickled and was not seen, if that can be told."""
    try:
        parts = (part for part in _parts(value) if id(part[1]) not in seen)
        return next((part for part in parts if not _can_travel(part[1])), None)
    except Exception:  # noqa: BLE001 - of the program's objects, which may do anything when asked
        return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what `value` consists of, each part with the words that lead to it."""
    if isinstance(value, types.MethodType):
        yield ".self", value.__self__
        value = value.__func__
    if isinstance(value, functools.partial):
        yield from ((f".{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    elif isinstance(value, types.FunctionType):
        yield from _captured(value)
    elif isinstance(value, dict):
        yield from ((f"[{reprlib.repr(key)}]", one) for key, one in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", one) for index, one in enumerate(value))
    elif not isinstance(value, (type, types.ModuleType)) and not _is_ours(value):
        held = getattr(value, "__dict__", {})
        yield from ((f".{name}", one) for name, one in held.items())


def _captured(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield a function's defaults, the variables around it, and the globals that it reads."""
    parameters = inspect.signature(function).parameters.values()
    yield from (
        (f".{one.name}", one.default) for one in parameters if one.default is not one.empty
    )
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            yield f".{name}", cell.cell_contents
    # Not co_names, which has attributes, too.
    read = {one.argval for one in dis.get_instructions(function) if one.opname == "LOAD_GLOBAL"}
    known = function.__globals__
    yield from ((f".{name}", known[name]) for name in sorted(read & known.keys()))


def _is_ours(value: Any) -> bool:
    """Tell whether `value` is of a class of mpistrat, whose attributes users do not know."""
    return type(value).__module__.partition(".")[0] == "mpistrat"


def _can_travel(value: Any) -> bool:
    try:
        pickled(value)
    except Exception:  # noqa: BLE001 - whatever the program's objects raise; this words an error
        return False
    return True
