"""Turn the objects that are messages into tuples, which travel, and back.

A message travels as the name of its class and its fields. To pickle the object itself would take
several times as long as to pickle that tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

__all__ = ["Encoded", "decoder", "encoded"]

Encoded: TypeAlias = tuple[Any, ...]


def encoded(message: object) -> Encoded:
    """Return a message, an object of a dataclass, as it travels."""
    # A dataclass's __init__ fills the object's dict in the order of the fields.
    return (type(message).__name__, *vars(message).values())


def decoder(classes: Iterable[Callable[..., Any]]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that returns the message again; it knows some classes.

    It raises ValueError on a message of another kind.
    """
    by_name = {one.__name__: one for one in classes}

    def decoded(found: Sequence[Any]) -> Any:
        name, *fields = found
        if name not in by_name:
            raise ValueError(f"a message of kind {name!r}; expected one of {', '.join(by_name)}")
        return by_name[name](*fields)

    return decoded
