"""Build the graph of saved objects: walk from a `Checkpoint` along attributes and keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpistrat.checkpoint.files import plain_values
from mpistrat.checkpoint.objects.children import Child, children_of, edges
from mpistrat.checkpoint.objects.leaves import STATE, array_part, encode_state, is_leaf, parts_of
from mpistrat.checkpoint.objects.names import join
from mpistrat.checkpoint.objects.saveable import Lack, Late, Part, Stateful
from mpistrat.errors import UsageError

__all__ = ["Graph", "Node", "build"]


@dataclass
class Node:
    """A node of the graph: an object that is saved or contains one that is, or a number.

    Attributes
    ----------
    thing
        The object.
    path
        One way to it, for names and messages.
    parts
        The tensors that it is, or has in its state.
    state
        Its ``state_dict()`` as JSON, or None.
    value
        A number as JSON, or None.
    set_value
        Puts another number in its place.
    children
        Nodes by the names that lead to them.
    is_leaf
        Whether it is saved, and not only what it leads to.
    """

    thing: Any
    path: str
    parts: tuple[Part, ...] = ()
    state: dict[str, Any] | None = None
    value: dict[str, Any] | None = None
    set_value: Callable[[Any], None] | None = None
    children: dict[str, int] = field(default_factory=dict)
    is_leaf: bool = False

    @property
    def own_parts(self) -> tuple[Part, ...]:
        """The tensors of the object itself, without those of its state."""
        return tuple(part for part in self.parts if not part.name.startswith(STATE))

    def key(self, part: Part) -> str:
        """Return the name of one of its tensors in the checkpoint."""
        name = part.name.replace("~", "~0") if part in self.own_parts else part.name
        return f"{self.path}/{name}" if name else self.path


@dataclass(frozen=True)
class Graph:
    """The graph of the objects that are reachable from one object.

    Attributes
    ----------
    nodes
        The object itself first; those that lead to nothing are left out.
    errors
        What cannot be saved. It is not raised at once: the nodes tell which ranks have to hear of
        it. Something may be of a type that cannot be saved, or have no name.
    unready
        Objects that cannot be restored yet: the names that lead to each, each way, and what it
        lacks.
    empty
        Names that the user gave to the first object's children of which nothing is saved, for now.
    """

    nodes: list[Node]
    errors: list[Exception]
    unready: list[tuple[tuple[str, ...], Lack]] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)

    def check(self) -> list[Node]:
        """Return the nodes, or raise the first error."""
        if self.errors:
            raise self.errors[0]
        return self.nodes


def build(top: Any) -> Graph:
    """Build the graph of the objects that are reachable from `top`. **Local.**"""
    walk = _Walk(top)
    nodes = walk.nodes
    kept = _leading(nodes)
    errors = walk.errors + [UsageError(why) for node, why in walk.nameless if node in kept]
    named = nodes[0].children.items()
    empty = [name for name, child in named if child not in kept and _has_more(nodes[child].thing)]
    numbers = {old: new for new, old in enumerate(sorted(kept | {0}))}
    for node in numbers:
        children = nodes[node].children
        nodes[node].children = {n: numbers[c] for n, c in children.items() if c in numbers}
    return Graph([nodes[node] for node in numbers], errors, walk.unready, empty)


def _has_more(thing: Any) -> bool:
    """Tell whether an object has contents, and will have nothing else to save later."""
    return not isinstance(thing, Late) and any(True for _ in edges(thing, is_named=False))


class _Walk:
    """A walk over all objects that are reachable from `top`, each visited once."""

    def __init__(self, top: Any) -> None:
        self.nodes = [Node(top, "")]
        self.nameless: list[tuple[int, str]] = []
        self.errors: list[Exception] = []
        self.unready: list[tuple[tuple[str, ...], Lack]] = []
        self._names: dict[int, tuple[str, ...]] = {0: ()}  # one way to each node
        self._note_lack(top, ())
        # Nodes keep their objects, so that no id is used again during the walk.
        self._known = {id(top): 0}
        # What the user named is walked first: numbers and arrays count there only.
        self._named, self._others = deque([0]), deque[int]()
        while self._named or self._others:
            is_named = bool(self._named)
            number = (self._named if is_named else self._others).popleft()
            try:
                for child in children_of(self.nodes[number].thing, is_named):
                    self._visit(self.nodes[number], child)
            except Exception as error:  # noqa: BLE001 - kept, see Graph
                place = f"{error} (at {self.nodes[number].path!r})"
                self.errors.append(UsageError(place) if type(error) is UsageError else error)

    def _visit(self, node: Node, child: Child) -> None:
        # Equal numbers may be one Python object: each name of a number has a node of its own.
        number = None if child.is_number else self._known.get(id(child.thing))
        last = "?" if child.name is None else child.name
        names = (*self._names[self._known[id(node.thing)]], last)
        self._note_lack(child.thing, names)
        if number is None:
            number = len(self.nodes)
            self.nodes.append(Node(child.thing, join(node.path, child.name or "?")))
            self._known[id(child.thing)] = number
            self._names[number] = names
            try:
                _fill(self.nodes[number], child)
            except Exception as error:  # noqa: BLE001 - kept, see Graph
                self.errors.append(error)
            if not self.nodes[number].is_leaf:
                (self._named if child.is_named else self._others).append(number)
        # The keys 1 and "1" of a dict are one name.
        if child.name is None or node.children.get(child.name, number) != number:
            self.nameless.append((number, _nameless(node, child)))
        else:
            node.children[child.name] = number

    def _note_lack(self, thing: Any, names: tuple[str, ...]) -> None:
        lack = thing.lacks_for_restore() if isinstance(thing, Late) else None
        if lack is not None:
            self.unready.append((names, lack))


def _fill(node: Node, child: Child) -> None:
    """Set a node's tensors and state."""
    thing = child.thing
    node.is_leaf = child.is_number or isinstance(thing, np.ndarray) or is_leaf(thing)
    if child.is_number:
        node.value, node.set_value = plain_values.encode(thing), child.set
    elif isinstance(thing, np.ndarray):
        node.parts = (array_part(thing, node.path),)
    elif node.is_leaf:
        node.parts = parts_of(thing)
        if isinstance(thing, Stateful):
            node.state, more = encode_state(thing.state_dict())
            node.parts += tuple(more)


def _nameless(node: Node, child: Child) -> str:
    what = f"a {type(child.thing).__name__} in {node.path or 'the checkpoint'!r}"
    if child.name is None:
        return (
            f"{what}, a {type(node.thing).__name__}, has no name in it that is a string or an"
            " integer; keep it in a list, or in a dict with such keys"
        )
    return f"{what} has the name {child.name!r}, and so has another one; rename one of them"


def _leading(nodes: list[Node]) -> set[int]:
    """Return the nodes that are leaves or have a leaf below them."""
    parents: dict[int, list[int]] = {number: [] for number in range(len(nodes))}
    for number, node in enumerate(nodes):
        for child in node.children.values():
            parents[child].append(number)
    kept = {number for number, node in enumerate(nodes) if node.is_leaf}
    waiting = deque(kept)
    while waiting:
        for parent in parents[waiting.popleft()]:
            if parent not in kept:
                kept.add(parent)
                waiting.append(parent)
    return kept
