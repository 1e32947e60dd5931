"""Describe this rank's saved values to the other ranks, and compare the descriptions."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mpistrat.checkpoint.objects.graph import Node
from mpistrat.checkpoint.objects.saveable import Part
from mpistrat.errors import MismatchError, UsageError

__all__ = ["Description", "check_alike", "describe", "merged_nodes", "merged_tensors", "tensors"]


@dataclass(frozen=True)
class Description:
    """The names, dtypes and shapes of one rank's objects, as plain data.

    Attributes
    ----------
    path
        Where it saves to.
    token
        Tells this save from others to the same path; rank 0's is taken.
    structure
        What must be equal on all ranks: each object with its children and whole tensors.
    nodes
        The objects as the index has them; rank 0's are taken, with all ranks' tensors.
    tensors
        dtype and shape of each tensor, by name.
    """

    path: str
    token: str
    structure: list[str]
    nodes: list[dict[str, Any]]
    tensors: dict[str, tuple[str, tuple[int, ...]]]


def tensors(nodes: Sequence[Node]) -> list[tuple[str, Part]]:
    """Return the tensors of all objects, by name, in an order that the ranks share."""
    return [(node.key(part), part) for node in nodes for part in node.parts]


def describe(nodes: Sequence[Node], path: str) -> Description:
    """Return the description of this rank's objects. **Local.**"""
    entries = []
    for node in nodes:
        entry: dict[str, Any] = {"tensors": {part.name: node.key(part) for part in node.parts}}
        for name in ("children", "state", "value"):
            if getattr(node, name) is not None:
                entry[name] = getattr(node, name)
        entries.append(entry)
    known: dict[str, tuple[str, tuple[int, ...]]] = {}
    for key, part in tensors(nodes):
        fact = part.dtype.name, tuple(part.shape)
        if key in known and (part.rows is None or known[key] != fact):
            raise UsageError(f"two tensors have the name {key!r}; rename one of them")
        known[key] = fact
    structure = [_line(node) for node in nodes]
    return Description(path, secrets.token_hex(6), structure, entries, known)


def _line(node: Node) -> str:
    whole = [
        f"{part.dtype.name}{list(part.shape)} {part.name}"
        for part in node.parts
        if part.rows is None
    ]
    kind = "a number" if node.value is not None else f"tensors {whole}"
    return f"{node.path or 'the checkpoint'}: {kind}, leads to {sorted(node.children.items())}"


def check_alike(everyone: Sequence[Description]) -> None:
    """Raise on every rank if the ranks save to different places, or different objects.

    Raises
    ------
    MismatchError
        They do. It shows the first difference.
    """
    for rank, one in enumerate(everyone):
        # zip() stops with the shorter list: "the end" makes an object that is missing a
        # difference.
        first = [f"path {everyone[0].path}", *everyone[0].structure, "the end"]
        mine = [f"path {one.path}", *one.structure, "the end"]
        for a, b in zip(first, mine, strict=False):
            if a != b:
                raise MismatchError(
                    f"the ranks save different things: rank 0 has {a}; rank {rank} has {b};"
                    " expected the same path and the same objects on all ranks",
                    {0: a, rank: b},
                )


def merged_nodes(everyone: Sequence[Description]) -> list[dict[str, Any]]:
    """Return the objects for the index: rank 0's numbers, all ranks' parts."""
    nodes = everyone[0].nodes
    for one in everyone[1:]:
        for node, other in zip(nodes, one.nodes, strict=True):
            node["tensors"] = {**other["tensors"], **node["tensors"]}
    return nodes


def merged_tensors(everyone: Sequence[Description]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return dtype and shape of each tensor that a rank holds a part of.

    Raises
    ------
    MismatchError
        The ranks hold parts of different tensors by one name.
    """
    known: dict[str, tuple[str, tuple[int, ...]]] = {}
    for rank, one in enumerate(everyone):
        for key, fact in one.tensors.items():
            if known.setdefault(key, fact) != fact:
                raise MismatchError(
                    f"tensor {key!r} is {fact} on rank {rank} and {known[key]} on another;"
                    " expected the dtype and shape of the whole tensor on all ranks"
                )
    return known
