"""Say in one line what pydantic found wrong in a site file."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from mpistrat.sites.schema import Site
from mpistrat.sites.sourced import Sourced

__all__ = ["described"]

_OF_PYDANTIC = {
    "Input should be ": "expected ",
    "a valid tuple": "a list",
    "a valid dictionary": "a table",
    "a valid integer": "an integer",
    "a valid ": "a ",
}
_EXAMPLE = '{ value = ..., source = "<key of [sources]>" }'


def described(error: ValidationError) -> str:
    """Return the first mistake: the key, what it holds, what was expected, what to write."""
    # A key that is spelled wrong is both unknown and missing.
    mistakes = error.errors(include_url=False)
    first = next((each for each in mistakes if each["type"] == "extra_forbidden"), mistakes[0])
    loc, given, kind = first["loc"], first["input"], first["type"]
    key = _key(loc)
    if kind == "extra_forbidden":
        return f"{key}: unknown key; {_expected(_model_at(loc[:-1]), str(loc[-1]))}"
    if kind == "missing":
        hint = f"; write {_EXAMPLE}" if loc[-1] in Sourced.model_fields else "; add it"
        return f"{key}: missing{hint}"
    if kind == "model_type" and issubclass(_model_at(loc), Sourced):
        return f"{key} = {given!r}: a value without its source; write {_EXAMPLE}"
    message = str(first["ctx"]["error"]) if kind == "value_error" else first["msg"]
    if not loc:  # a rule between tables, which names its keys itself
        return message
    for theirs, ours in _OF_PYDANTIC.items():
        message = message.replace(theirs, ours)
    return f"{key} = {_short(given)}: {message}"


def _key(loc: Sequence[str | int]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return "".join(parts).removeprefix(".")


def _short(value: object) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _expected(model: type[BaseModel], name: str) -> str:
    known = list(model.model_fields)
    close = get_close_matches(name, known, n=1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"{meant}expected one of {', '.join(known)}"


def _model_at(loc: Sequence[str | int]) -> type[BaseModel]:
    """Return the model that the schema has at a place of the file."""
    model: type[BaseModel] = Site
    for part in loc:
        field = model.model_fields.get(str(part))
        # Otherwise it is an index of a list or a name of a dictionary, both of one model.
        if field is not None and (below := _model_in(field.annotation)):
            model = below
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model in ``X``, ``X | None``, ``tuple[X, ...]`` or ``dict[str, X]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for arg in get_args(annotation) if (model := _model_in(arg))), None)
