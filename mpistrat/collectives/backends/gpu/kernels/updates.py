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
from mpistrat.tables.update_rules import AdagradRule, AdamRule, Rule, SGDRule
from mpistrat.types import Array

__all__ = [
    "UPDATE_PIECE",
    "Move",
    "Recipe",
    "add_scaled",
    "apply_rule",
    "has_kernel",
    "recipe",
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


class Move(NamedTuple):
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


class Recipe(NamedTuple):
    """A rule for the kernel: its name there, the order of its slots, and its numbers."""

    name: str
    slots: tuple[str, ...]
    numbers: tuple[float, ...]


def update_dtype() -> np.dtype[Any]:
    """Return the layout of ``Update`` in updates.cu."""
    fields = [("table", table_dtype(UPDATE_PIECE)), ("numbers", np.float64, _MAX_NUMBERS)]
    return np.dtype(fields)


def recipe(rule: Rule, step: int, learning_rate: float) -> Recipe:
    """Return what the kernel has to know of a rule, with the numbers that `Rule.move` uses.

    Raises
    ------
    UsageError
        The rule is none of mpistrat's own, and there is no kernel for it.
    """
    if type(rule) is SGDRule:
        if not rule.momentum:
            return Recipe("Descent", (), (-learning_rate,))
        name = "Nesterov" if rule.nesterov else "Momentum"
        return Recipe(name, ("momentum",), (-learning_rate, rule.momentum))
    if type(rule) is AdagradRule:
        return Recipe("Adagrad", ("accumulator",), (-learning_rate, rule.epsilon))
    if type(rule) is AdamRule:
        slots = ("momentum", "velocity", "velocity_hat")[: 3 if rule.amsgrad else 2]
        scale = learning_rate * np.sqrt(1 - rule.beta_2**step) / (1 - rule.beta_1**step)
        numbers = (float(-scale), 1 - rule.beta_1, 1 - rule.beta_2, rule.epsilon)
        return Recipe("AmsGrad" if rule.amsgrad else "Adam", slots, numbers)
    raise UsageError(
        f"no GPU kernel for the rule {type(rule).__name__}; expected SGDRule, AdagradRule or"
        " AdamRule"
    )


def has_kernel(rule: Rule) -> bool:
    """Tell whether there is a kernel for a rule: mpistrat's own have one, subclasses none."""
    return type(rule) in (SGDRule, AdagradRule, AdamRule)


def apply_rule(rule: Rule, moves: Sequence[Move], step: int, learning_rate: float) -> None:
    """Update variables and their slots in place. **Local.** One launch for each pair of dtypes.

    Launched on the current stream, and not waited for. The results have the bits of `Rule.apply`.
    """
    found = recipe(rule, step, learning_rate)
    slots = [[move.slots[name] for move in moves] for name in found.slots]
    _apply(found, [[move.variable for move in moves], [move.gradient for move in moves], *slots])


def add_scaled(pairs: Sequence[tuple[Any, Any]], factor: float) -> None:
    """Add `factor` times the second array to the first, for all pairs. **Local.**

    Product and sum are rounded each, in float32 for half types, which are rounded once more.
    """
    _apply(
        Recipe("Descent", (), (factor,)), [[to for to, _ in pairs], [what for _, what in pairs]]
    )


def _apply(found: Recipe, arrays: list[list[Any]]) -> None:
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


def _launch(found: Recipe, types: tuple[str, ...], pieces: Array) -> None:
    table = table_for(_UPDATED, pieces)
    if table.chunks == 0:
        return
    numbers = _NUMBERS.pack(*found.numbers, *[0.0] * (_MAX_NUMBERS - len(found.numbers)))
    device = current_device()
    function = kernel(device, "update", f"mpistrat::{found.name}", *types, file="updates")
    launch(function, blocks_for(device, table.chunks), table.content + numbers)
