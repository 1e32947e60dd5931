"""Match a program's objects with the names in a checkpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpistrat.checkpoint.files.dtypes import as_dtype
from mpistrat.checkpoint.objects.graph import Node
from mpistrat.checkpoint.objects.leaves import STATE
from mpistrat.checkpoint.objects.names import join
from mpistrat.checkpoint.objects.saveable import Lack, Part
from mpistrat.errors import UsageError

__all__ = ["Matches", "check_ready", "match"]


@dataclass(frozen=True)
class Matches:
    """The objects that a program and a checkpoint share, and those that one of them lacks.

    Attributes
    ----------
    parts
        Tensors of the program, with their name in the checkpoint.
    states
        Objects that take a state, with their node in the checkpoint.
    values
        Numbers, with the number in the checkpoint.
    missing
        Paths of what the program has and the checkpoint has not.
    unused
        What the checkpoint has and the program has not.
    """

    parts: list[tuple[Part, str]]
    states: list[tuple[Node, Mapping[str, Any]]]
    values: list[tuple[Node, dict[str, Any]]]
    missing: list[str]
    unused: list[str]


def match(nodes: Sequence[Node], index: Mapping[str, Any]) -> Matches:
    """Match the objects of a program with those of a checkpoint.

    Raises
    ------
    UsageError
        A tensor has another shape or dtype in the checkpoint.
    """
    saved = index["nodes"]
    pairs = _pairs(nodes, saved)
    found = Matches([], [], [], [], [])
    used: set[tuple[int, str]] = set()
    for number, node in enumerate(nodes):
        if node.is_leaf:
            other = pairs.get(number)
            entry = {} if other is None else saved[other]
            took = _match_leaf(node, entry, index["tensors"], found)
            used |= {(-1 if other is None else other, one) for one in took}
    left = [
        (number, what)
        for number, entry in enumerate(saved)
        for what in _contents(entry)
        if (number, what) not in used
    ]
    paths = _paths(saved) if left else {}
    found.unused.extend(
        _label(saved[number], paths.get(number, "?"), what) for number, what in left
    )
    return found


def check_ready(unready: Sequence[tuple[tuple[str, ...], Lack]], index: Mapping[str, Any]) -> None:
    """Raise if the checkpoint has the values of an object that cannot be restored yet.

    Raises
    ------
    UsageError
        It says what the object lacks.
    """
    saved = index["nodes"]
    for names, (lacking, advice) in unready:
        number: int | None = 0
        for name in names:
            number = None if number is None else saved[number].get("children", {}).get(name)
        held = {} if number is None else saved[number].get("children", {})
        if any(name in held for name in lacking):
            where = repr("/".join(names)) if names else "the root"
            raise UsageError(f"{where} cannot be restored yet: {advice}")


def _pairs(nodes: Sequence[Node], saved: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Walk both graphs from their first nodes along equal names."""
    # Breadth first: an object with several names is matched by its shortest path.
    pairs, waiting = {0: 0}, deque([0])
    while waiting:
        number = waiting.popleft()
        children = saved[pairs[number]].get("children", {})
        for name, child in nodes[number].children.items():
            if name in children and child not in pairs:
                pairs[child] = children[name]
                waiting.append(child)
    return pairs


def _match_leaf(
    node: Node, entry: Mapping[str, Any], tensors: Mapping[str, Any], found: Matches
) -> list[str]:
    """Match one object; return the parts of its entry that it restores."""
    took, own = [], entry.get("tensors", {})
    for part in node.own_parts:
        if part.name in own:
            key = own[part.name]
            _check(node, part, tensors[key])
            found.parts.append((part, key))
            took.append(part.name)
        else:
            found.missing.append(node.key(part))
    if node.state is not None:
        if "state" in entry:
            found.states.append((node, entry))
            # A state is restored as a whole, with the tensors whose names begin like it.
            took += [STATE, *(name for name in own if name.startswith(STATE))]
        else:
            found.missing.append(f"the state of {node.path}")
    if node.value is not None:
        if "value" in entry:
            found.values.append((node, entry["value"]))
            took.append("value")
        else:
            found.missing.append(node.path)
    return took


def _check(node: Node, part: Part, entry: Mapping[str, Any]) -> None:
    shape, dtype = tuple(entry["shape"]), as_dtype(entry["dtype"])
    if shape != tuple(part.shape) or dtype != part.dtype:
        raise UsageError(
            f"{node.key(part)!r} has shape {tuple(part.shape)}, dtype {part.dtype}; the checkpoint"
            f" has shape {shape}, dtype {dtype}; make it as it was, or under another name"
        )


def _contents(entry: Mapping[str, Any]) -> list[str]:
    state = [STATE] if "state" in entry else []
    return [*entry.get("tensors", {}), *state, *(["value"] if "value" in entry else [])]


def _label(entry: Mapping[str, Any], path: str, what: str) -> str:
    if what in entry.get("tensors", {}):
        return str(entry["tensors"][what])
    return path if what == "value" else f"the {what.strip(':')} of {path}"


def _paths(saved: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Return one way to each object of a checkpoint, as its path is in a program."""
    paths, waiting = {0: ""}, deque([0])
    while waiting:
        parent = waiting.popleft()
        for name, child in saved[parent].get("children", {}).items():
            if child not in paths:
                paths[child] = join(paths[parent], name)
                waiting.append(child)
    return paths
