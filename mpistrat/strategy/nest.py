"""Walk nests with optree: tuples, lists, dicts, named tuples; None and all else are leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from mpistrat.errors import UsageError
from mpistrat.types import Nest

__all__ = ["flatten", "is_nested", "map_nest", "map_nests", "text_of", "text_of_list"]

_LEAVES = (np.ndarray, np.generic, int, float, complex, str, bytes, type(None))


def flatten(nest: Nest) -> tuple[list[Any], Any]:
    """Return the leaves in order, and a structure with ``structure.unflatten(leaves)``."""
    import optree

    leaves, structure = optree.tree_flatten(nest, none_is_leaf=True)
    return leaves, structure


def text_of(structure: Any) -> str:
    """Return what `flatten` calls a structure in few words: a star for each leaf."""
    return str(structure).removeprefix("PyTreeSpec(").removesuffix(", NoneIsLeaf)")


@lru_cache(maxsize=256)
def text_of_list(length: int) -> str:
    """Return the :func:`text_of` a list of so many leaves."""
    return text_of(flatten([None] * length)[1])


def is_nested(nest: Nest) -> bool:
    """Tell whether `nest` is more than one leaf."""
    if isinstance(nest, _LEAVES):
        return False
    import optree

    return not optree.tree_is_leaf(nest, none_is_leaf=True)


def map_nest(function: Callable[[Any], Any], nest: Nest) -> Nest:
    """Return `nest` with `function` applied to each leaf."""
    if isinstance(nest, _LEAVES):
        return function(nest)
    leaves, structure = flatten(nest)
    return structure.unflatten([function(leaf) for leaf in leaves])


def map_nests(function: Callable[[Sequence[Any]], Any], nests: Sequence[Nest]) -> Nest:
    """Return the common structure, each leaf `function` of the list of the nests' leaves."""
    leaves, structure = flatten(nests[0])
    rows = [leaves]
    for index, nest in enumerate(nests[1:], 1):
        more, other = flatten(nest)
        if other != structure:
            raise UsageError(
                f"replica 0 gave the structure {text_of(structure)}, replica {index} gave"
                f" {text_of(other)}; expected the same structure from all replicas"
            )
        rows.append(more)
    return structure.unflatten([function(column) for column in zip(*rows, strict=True)])
