"""Move variables in the memory of the host by an optimizer's rule: all copies by one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.values import DistributedValues
from mpistrat.strategy.variables.base import Variable
from mpistrat.tables.native_updates import NativeRule, update_natively
from mpistrat.types import Array

__all__ = ["RuleMove", "copies", "move_together"]

RuleMove: TypeAlias = tuple[Any, Mapping[str, Any], Any]
"""A variable, an optimizer's slots of it by name, and its gradient."""


def copies(variable: Any) -> Sequence[Any]:
    """Return the copies of a variable on this rank."""
    return variable.values if isinstance(variable, DistributedValues) else (variable,)


def move_together(native: NativeRule, moves: Sequence[RuleMove]) -> list[RuleMove]:
    """Make the moves that native code can make; return the others. **Local.**

    Parameters
    ----------
    native
        An optimizer's rule, with the numbers of this step.
    moves
        Of any kind.

    Returns
    -------
    list
        Those of variables on GPUs, servers or in memory shared with other ranks, and of gradients
        of some rows; and all, if native code refuses one array.
    """
    columns: list[list[Any]] = [[] for _ in range(2 + len(native.slots))]
    rest = []
    for move in moves:
        arrays = _arrays(native, move)
        if arrays is None:
            rest.append(move)
            continue
        for column, some in zip(columns, arrays, strict=True):
            column.extend(some)
    variables, gradients, *slots = columns
    return rest if update_natively(native, variables, gradients, slots) else list(moves)


def _arrays(native: NativeRule, move: RuleMove) -> list[list[Array]] | None:
    """Return lists with an array for each copy: of the variable, its gradient and its slots."""
    variable, slots, gradient = move
    memory = _memory(variable)
    if memory is None:
        return None
    gradients = _of_each(gradient, len(memory))
    if gradients is None:
        return None
    found = [memory, gradients]
    for name in native.slots:
        kept = _memory(slots[name])
        if kept is None or len(kept) != len(memory):
            return None
        found.append(kept)
    return found


def _memory(variable: Any) -> list[Array] | None:
    """Return the memory of all copies, or None if one is not in this process's own."""
    each = copies(variable)
    for one in each:
        if type(one) is not Variable:
            return None
    return [one.live() for one in each]


def _of_each(gradient: Any, number: int) -> list[Array] | None:
    """Return the gradient of each copy, or None if it is one of some rows."""
    each = gradient.values if isinstance(gradient, DistributedValues) else (gradient,) * number
    if isinstance(each[0], IndexedSlices):
        return None
    return [_in_c_order(one) for one in each]


def _in_c_order(gradient: Any) -> Array:
    """Return a gradient as NumPy's array of native byte order, without a copy if it is one."""
    array = gradient if type(gradient) is np.ndarray else as_array(gradient)
    if array.flags.c_contiguous and array.dtype.isnative:
        return array
    return np.asarray(array, array.dtype.newbyteorder("="), order="C")
