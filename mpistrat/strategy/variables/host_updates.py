"""Update variables in the memory of the host by an optimizer's rule: all copies by one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from mpistrat.collectives.arrays.conversion import as_array
from mpistrat.strategy.indexed_slices import IndexedSlices
from mpistrat.strategy.values import DistributedValues
from mpistrat.tables.native_updates import NativeRule, update_natively
from mpistrat.types import Array

__all__ = ["RuleUpdate", "copies", "update_together"]

RuleUpdate: TypeAlias = tuple[Any, Mapping[str, Any], Any]
"""A variable, an optimizer's slots of it by name, and its gradient."""


def copies(variable: Any) -> Sequence[Any]:
    """Return the copies of a variable on this rank."""
    return variable.values if isinstance(variable, DistributedValues) else (variable,)


def update_together(
    native: NativeRule, updates: Sequence[RuleUpdate], update_alone: Callable[[RuleUpdate], None]
) -> None:
    """Make updates in their order, as many as can be by one call of native code. **Local.**

    Parameters
    ----------
    native
        An optimizer's rule, with the numbers of this step.
    updates
        Of variables in this process's own memory native code makes those with gradients of all
        elements.
    update_alone
        Makes any other one.
    """
    batch = _Batch(native, update_alone)
    for update in updates:
        memory = _memory_of_all(native, update)
        if memory is None:
            batch.carry_out()
            update_alone(update)
        else:
            batch.add(update, memory)
    batch.carry_out()


class _Batch:
    """Updates that wait to be made by one call.

    Parameters
    ----------
    native, update_alone
        As of `update_together`.
    """

    def __init__(self, native: NativeRule, update_alone: Callable[[RuleUpdate], None]) -> None:
        self._native, self._update_alone = native, update_alone
        self._begin()

    def _begin(self) -> None:
        self._updates: list[RuleUpdate] = []
        self._gradients: list[Array] = []
        self._columns: list[list[Array]] = [[] for _ in range(1 + len(self._native.slots))]

    def add(self, update: RuleUpdate, memory: list[tuple[Array, ...]]) -> None:
        """Put an update behind the others; `memory` is that of its variable, and of each slot."""
        gradients = _of_each(update[2], len(memory[0]))
        if not all(map(_is_plain, gradients)):
            # A copy is made of it, which has to be of what it is once the others are made.
            self.carry_out()
            gradients = [_in_c_order(one) for one in gradients]
        self._updates.append(update)
        self._gradients.extend(gradients)
        for column, some in zip(self._columns, memory, strict=True):
            column.extend(some)

    def carry_out(self) -> None:
        """Make all."""
        variables, *slots = self._columns
        if not update_natively(self._native, variables, self._gradients, slots):
            for update in self._updates:
                self._update_alone(update)
        self._begin()


def _memory_of_all(native: NativeRule, update: RuleUpdate) -> list[tuple[Array, ...]] | None:
    """Return the memory of a variable's copies, and that of each slot's.

    None if there is a gradient of some rows, or some of it is not in this process's own memory.
    """
    variable, slots, gradient = update
    first = gradient.values[0] if isinstance(gradient, DistributedValues) else gradient
    if isinstance(first, IndexedSlices):
        return None
    found = [variable.memory_on_host, *(slots[name].memory_on_host for name in native.slots)]
    if None in found or len(set(map(len, found))) > 1:
        return None
    return found


def _of_each(gradient: Any, number: int) -> list[Any]:
    """Return the gradient of each copy."""
    if isinstance(gradient, DistributedValues):
        return [gradient.values[index] for index in range(number)]
    return [gradient] * number


def _is_plain(gradient: Any) -> bool:
    return type(gradient) is np.ndarray and gradient.flags.c_contiguous and gradient.dtype.isnative


def _in_c_order(gradient: Any) -> Array:
    """Return a gradient as NumPy's array in native byte order."""
    array = as_array(gradient)
    return np.asarray(array, array.dtype.newbyteorder("="), order="C")
