"""Find what an object contains: its attributes, keys or elements."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mpistrat.checkpoint.files.plain_values import NUMBERS
from mpistrat.checkpoint.objects.leaves import is_leaf
from mpistrat.collectives import Communicator
from mpistrat.errors import UsageError
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.extended import StrategyExtended
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.sharded.variable import whole_of

__all__ = ["Child", "Tracked", "children_of", "edges", "may_lead"]

_OPAQUE = (str, bytes, type, Strategy, StrategyExtended, Communicator)
_CONTAINERS = (Mapping, list, tuple, set, frozenset, SimpleNamespace)


@dataclass(frozen=True)
class Child:
    """An attribute, key or element of an object.

    Attributes
    ----------
    name
        None if it has no name that stays the same.
    thing
        What it is.
    is_named
        Whether the user gave it to a `Checkpoint`, itself or in containers: numbers and arrays
        are saved there, while those in the attributes of other objects are seldom meant.
    set
        Puts something else in its place; None if that cannot be done.
    """

    name: str | None
    thing: Any
    is_named: bool
    set: Callable[[Any], None] | None = None

    @property
    def is_number(self) -> bool:
        """Whether it is a number, which is identified by its path and not as an object."""
        return isinstance(self.thing, NUMBERS)


@runtime_checkable
class Tracked(Protocol):
    """An object that names its children itself, such as a `Checkpoint`."""

    def tracked_children(self) -> Iterator[Child]:
        """Return the children by name."""


def children_of(thing: Any, is_named: bool) -> Iterator[Child]:
    """Return the children of an object that are saved, or may contain objects that are.

    Raises
    ------
    UsageError
        A number is where it could not be restored.
    """
    for child in edges(thing, is_named):
        whole = whole_of(child.thing) if isinstance(child.thing, Variable) else child.thing
        if whole is not child.thing:
            yield Child(child.name, whole, child.is_named)
        elif not isinstance(child.thing, (*NUMBERS, np.ndarray)):
            if may_lead(child.thing):
                yield child
        elif is_named and isinstance(thing, (set, frozenset)):
            raise UsageError(
                f"{child.thing!r} is in a {type(thing).__name__}, where it could not be restored:"
                " it has no name there; use a list or a dict"
            )
        elif child.is_named:
            if child.is_number and child.set is None:
                raise UsageError(
                    f"the number {child.thing!r} is in a {type(thing).__name__}, so it could not"
                    " be restored; use a list or a dict"
                )
            yield child


def may_lead(thing: Any) -> bool:
    """Tell whether an object is saved, or may contain objects that are."""
    if thing is None or isinstance(thing, _OPAQUE):
        return False
    if isinstance(thing, _CONTAINERS) or is_leaf(thing):
        return True
    # Objects of the standard library are not walked: a logger, say, leads to all other loggers.
    package = type(thing).__module__.partition(".")[0]
    has_attributes = hasattr(thing, "__dict__") or hasattr(thing, "__slots__")
    return has_attributes and package not in sys.stdlib_module_names and package != "numpy"


def edges(thing: Any, is_named: bool) -> Iterator[Child]:
    """Return all children of an object: its attributes, keys or elements."""
    if isinstance(thing, Tracked):
        yield from thing.tracked_children()
    elif isinstance(thing, Mapping):
        store = thing.__setitem__ if isinstance(thing, MutableMapping) else None
        for key, value in thing.items():
            name = str(key) if isinstance(key, str | int) else None
            put = None if store is None else _setter(store, key)
            yield Child(name, value, is_named, put)
    elif isinstance(thing, list | tuple):
        for index, value in enumerate(thing):
            put = _setter(thing.__setitem__, index) if isinstance(thing, list) else None
            yield Child(str(index), value, is_named, put)
    elif isinstance(thing, set | frozenset):
        for value in thing:
            yield Child(None, value, False)
    else:
        for name, value in _attributes(thing):
            yield Child(name, value, False)


def _setter(put: Callable[[Any, Any], Any], key: Any) -> Callable[[Any], None]:
    return lambda value: put(key, value)


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(thing, "__dict__", {}).items())
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield name, getattr(thing, name)
