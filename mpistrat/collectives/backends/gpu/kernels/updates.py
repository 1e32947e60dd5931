"""Apply the optimizers' update rules to variables on a GPU, many of them by one launch."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from mpistrat.collectives.backends.gpu.kernels import source
from mpistrat.collectives.backends.gpu.kernels.launch import (
    blocks_for,
    current_device,
    kernel,
    launch,
)
from mpistrat.collectives.backends.gpu.kernels.table_cache import (
    Layout,
    addresses,
    column,
    table_for,
)
from mpistrat.collectives.backends.gpu.kernels.tables import table_dtype
from mpistrat.errors import UsageError
from mpistrat.tables.native_updates import NativeRule
from mpistrat.tables.rule import Rule
from mpistrat.types import Array

__all__ = [
    "UPDATE_PIECE",
    "Update",
    "add_scaled",
    "apply_rule",
    "has_kernel",
    "update_dtype",
]

_MAX_SLOTS = 3
_MAX_NUMBERS = 4

UPDATE_PIECE = np.dtype(
    [
        ("variable", np.uint64),
        ("gradient", np.uint64),
        ("slots", np.uint64, _MAX_SLOTS),
        ("count", np.uint64),
    ]
)
"""``UpdatePiece`` of updates.cu."""

_UPDATED = Layout(UPDATE_PIECE, chunk=4096, sizes=lambda pieces: pieces["count"])
_NUMBERS = struct.Struct(f"{_MAX_NUMBERS}d")
_DTYPE, _SIZE = attrgetter("dtype"), attrgetter("size")


class Update(NamedTuple):
    """One variable to update: arrays of CuPy, of one shape, in C order.

    Attributes
    ----------
    variable, gradient
        Of any floating dtypes.
    slots
        Of the rule's `slot_dtype` for the variable's.
    """

    variable: Any
    slots: Mapping[str, Any]
    gradient: Any


def update_dtype() -> np.dtype[Any]:
    """Return the layout of ``Update`` in updates.cu."""
    fields = [("table", table_dtype(UPDATE_PIECE)), ("numbers", np.float64, _MAX_NUMBERS)]
    return np.dtype(fields)


def has_kernel(rule: Rule) -> bool:
    """Tell whether there is a kernel for a rule: mpistrat's own have one, subclasses none."""
    return rule.native_rule(1, 0.0) is not None


def apply_rule(rule: Rule, updates: Sequence[Update], step: int, learning_rate: float) -> None:
    """Update variables and their slots in place. **Local.** One launch for each pair of dtypes.

    Launched on the current stream, and not waited for. The results have the bits of `Rule.apply`.
    """
    found = rule.native_rule(step, learning_rate)
    if found is None:
        raise UsageError(
            f"no GPU kernel for the rule {type(rule).__name__}; expected SGDRule, AdagradRule or"
            " AdamRule"
        )
    slots = [[one.slots[name] for one in updates] for name in found.slots]
    _apply(found, [[one.variable for one in updates], [one.gradient for one in updates], *slots])


def add_scaled(pairs: Sequence[tuple[Any, Any]], factor: float) -> None:
    """Add `factor` times the second array to the first, for all pairs. **Local.**

    Product and sum are rounded each, in float32 for half types, which are rounded once more.
    """
    rule = NativeRule("Descent", (), (factor,))
    _apply(rule, [[to for to, _ in pairs], [what for _, what in pairs]])


def _apply(found: NativeRule, arrays: list[list[Any]]) -> None:
    """Update variables; `arrays` has lists of them, of their gradients, and of each slot."""
    groups = [(tuple(map(source.type_name, kind)), some) for kind, some in _by_dtypes(arrays)]
    for types, alike in groups:
        _launch(found, types, _pieces(*alike))


def _by_dtypes(arrays: list[list[Any]]) -> list[tuple[tuple[Any, ...], list[list[Any]]]]:
    """Return pairs of dtypes of variables and gradients, and the part of each list that has it."""
    sets = [{*map(_DTYPE, some)} for some in arrays[:2]]
    if all(len(one) == 1 for one in sets):  # most often, and quickly found
        return [(tuple(one.pop() for one in sets), arrays)]
    indices: dict[tuple[Any, ...], list[int]] = {}
    for i, kind in enumerate(zip(*(map(_DTYPE, some) for some in arrays[:2]), strict=True)):
        indices.setdefault(kind, []).append(i)
    return [(kind, [[some[i] for i in of] for some in arrays]) for kind, of in indices.items()]


def _pieces(variables: list[Any], gradients: list[Any], *slots: list[Any]) -> Array:
    pieces = np.zeros(len(variables), UPDATE_PIECE)
    pieces["variable"], pieces["gradient"] = addresses(variables), addresses(gradients)
    for i, some in enumerate(slots):
        pieces["slots"][:, i] = addresses(some)
    pieces["count"] = column(map(_SIZE, variables))
    return pieces


def _launch(found: NativeRule, types: tuple[str, ...], pieces: Array) -> None:
    table = table_for(_UPDATED, pieces)
    if table.chunks == 0:
        return
    numbers = _NUMBERS.pack(*found.numbers, *[0.0] * (_MAX_NUMBERS - len(found.numbers)))
    device = current_device()
    function = kernel(device, "update", f"mpistrat::{found.name}", *types, file="updates")
    launch(function, blocks_for(device, table.chunks), table.content + numbers)
