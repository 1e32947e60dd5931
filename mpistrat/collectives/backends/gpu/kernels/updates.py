"""Apply the optimizers' update rules to variables on a GPU, many of them by one launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mpistrat.collectives.backends.gpu.kernels import source
from mpistrat.collectives.backends.gpu.kernels.launch import (
    blocks_for,
    current_device,
    kernel,
    launch,
)
from mpistrat.collectives.backends.gpu.kernels.tables import filled, table_dtype
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
_CHUNK_COUNT = 4096

UPDATE_PIECE = np.dtype(
    [
        ("variable", np.uint64),
        ("gradient", np.uint64),
        ("slots", np.uint64, _MAX_SLOTS),
        ("count", np.uint64),
    ]
)
"""``UpdatePiece`` of updates.cu."""


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
    slots: dict[str, Any]
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
    _apply(found, [(m.variable, m.gradient, [m.slots[s] for s in found.slots]) for m in moves])


def add_scaled(pairs: Sequence[tuple[Any, Any]], factor: float) -> None:
    """Add `factor` times the second array to the first, for all pairs. **Local.**

    Product and sum are rounded each, in float32 for half types, which are rounded once more.
    """
    _apply(Recipe("Descent", (), (factor,)), [(to, what, []) for to, what in pairs])


def _apply(found: Recipe, moves: Sequence[tuple[Any, Any, list[Any]]]) -> None:
    kinds: dict[tuple[str, str], list[tuple[Any, Any, list[Any]]]] = {}
    for move in moves:
        types = (source.type_name(move[0].dtype), source.type_name(move[1].dtype))
        kinds.setdefault(types, []).append(move)
    for types, alike in kinds.items():
        pieces = np.zeros(len(alike), UPDATE_PIECE)
        for piece, (variable, gradient, slots) in zip(pieces, alike, strict=True):
            piece["variable"], piece["gradient"] = variable.data.ptr, gradient.data.ptr
            piece["slots"][: len(slots)] = [slot.data.ptr for slot in slots]
            piece["count"] = variable.size
        _launch(found, types, pieces)


def _launch(found: Recipe, types: tuple[str, str], pieces: Array) -> None:
    call = np.zeros((), update_dtype())
    call["numbers"][: len(found.numbers)] = found.numbers
    chunks, _memory = filled(call["table"], pieces, pieces["count"], _CHUNK_COUNT)
    if chunks == 0:
        return
    device = current_device()
    function = kernel(device, "update", f"mpistrat::{found.name}", *types, file="updates")
    launch(function, blocks_for(device, chunks), call)
