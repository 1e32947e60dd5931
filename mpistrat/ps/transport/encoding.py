"""Turn the objects that are messages into tuples, which travel, and back.

A message travels as the name of its class and its fields. To pickle the object itself would take
several times as long as to pickle that tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

__all__ = ["Encoded", "decoder", "encoded"]

Encoded: TypeAlias = tuple[Any, ...]


def encoded(message: object) -> Encoded:
    """Return a message, an object of a dataclass, as it travels."""
    # A dataclass's __init__ fills the object's dict in the order of the fields.
    return (type(message).__name__, *vars(message).values())


def decoder(classes: Iterable[Callable[..., Any]]) -> Callable[[Encoded], Any]:
    """Return a function that returns the message again; it knows some classes.

    It raises ValueError on a message of another kind.
    """
    by_name = {one.__name__: one for one in classes}

    def decoded(found: Encoded) -> Any:
        try:
            kind = by_name[found[0]]
        except KeyError:
            known = ", ".join(by_name)
            raise ValueError(f"a message of kind {found[0]!r}; expected one of {known}") from None
        return kind(*found[1:])

    return decoded
