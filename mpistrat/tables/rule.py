"""`Rule`: how an optimizer's gradient changes an array and its slots, the base of all rules.

A rule changes a variable and its *slots* (arrays of the same shape that it keeps with it) in
place. It has no state of its own, so the same one serves mirrored copies and shards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from mpistrat.tables.native_updates import NativeRule, update_natively
from mpistrat.tables.rows import replace, taken
from mpistrat.types import Array

__all__ = ["Rule", "Slots"]

Slots = Mapping[str, Array]


@dataclass(frozen=True)
class Rule(ABC):
    """Base of the rules that update an array, and its slots, with a gradient.

    Attributes
    ----------
    lazy
        Whether rows without a gradient stay as they are, and their slots too. Else a gradient of
        some rows is one of all with zeros in the others, which still decays what is kept of them.
    """

    lazy: bool = False

    def __post_init__(self) -> None:
        # NumPy would compute in float64 with numbers of its own, native code does not.
        for field in fields(self):
            if field.type == "float":
                object.__setattr__(self, field.name, float(getattr(self, field.name)))

    def initial_slots(self) -> dict[str, float]:
        """Return the slots' names and their initial values."""
        return {}

    @property
    def leaves_rows(self) -> bool:
        """Whether a zero gradient leaves a row and its slots unchanged."""
        return self.lazy or not self.initial_slots()

    @staticmethod
    def slot_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of a variable's slots and of its updates: no half types."""
        return np.dtype(np.float32) if dtype.itemsize < np.dtype(np.float32).itemsize else dtype

    def apply(
        self, variable: Array, slots: Slots, gradient: Array, step: int, learning_rate: float
    ) -> None:
        """Apply one update in place.

        Parameters
        ----------
        variable
            Of a floating type; changed in place.
        slots
            Arrays of its shape in `slot_dtype`, by name; changed in place.
        gradient
            Of its shape.
        step
            From 1.
        learning_rate
            A factor of the update.
        """
        native = self.native_rule(step, learning_rate)
        if native is not None:
            kept = [[slots[name]] for name in native.slots]
            if update_natively(native, [variable], [gradient], kept):
                return
        self.apply_in_numpy(variable, slots, gradient, step, learning_rate)

    def apply_apart(
        self,
        variable: tuple[Array, Array],
        slots: Mapping[str, tuple[Array, Array]],
        gradient: Array,
        step: int,
        learning_rate: float,
    ) -> None:
        """Apply one update, and write the results to other memory.

        Parameters
        ----------
        variable, slots
            As for `apply`, pairs of what is read and what is written: the same array, or apart.
        gradient, step, learning_rate
            As for `apply`.
        """
        native = self.native_rule(step, learning_rate)
        if native is not None:
            old, new = zip(variable, *(slots[name] for name in native.slots), strict=True)
            columns = [[one] for one in new[1:]]
            read = [old[0]], [[one] for one in old[1:]]
            if update_natively(native, [new[0]], [gradient], columns, read):
                return
        for before, after in (variable, *slots.values()):
            np.copyto(after, before)
        kept = {name: after for name, (_, after) in slots.items()}
        self.apply(variable[1], kept, gradient, step, learning_rate)

    def apply_in_numpy(
        self, variable: Array, slots: Slots, gradient: Array, step: int, learning_rate: float
    ) -> None:
        """Do :meth:`apply` by :meth:`change`, for arrays that native code does not take."""
        dtype = self.slot_dtype(variable.dtype)
        rate = float(learning_rate)  # as in __post_init__
        change = self.change(slots, gradient.astype(dtype, copy=False), step, rate)
        variable[...] = np.add(variable.astype(dtype, copy=False), change)

    def apply_rows(
        self,
        variable: Array,
        slots: Slots,
        rows: Array,
        gradient: Array,
        step: int,
        learning_rate: float,
    ) -> None:
        """Apply one update in place with a gradient of some rows along axis 0.

        Parameters
        ----------
        variable, slots, step, learning_rate
            As for `apply`.
        rows
            Indices of shape [n], each once.
        gradient
            Shape [n, ...].
        """
        if not self.leaves_rows:
            # A zero gradient changes other rows, too (momentum), so all rows are updated.
            whole = np.zeros_like(variable, gradient.dtype)
            whole[rows] = gradient
            self.apply(variable, slots, whole, step, learning_rate)
            return
        # Copies of the rows, then back: indexing with `rows` gives no view to change in place.
        part = taken(variable, rows)
        kept = {name: taken(slot, rows) for name, slot in slots.items()}
        self.apply(part, kept, gradient, step, learning_rate)
        replace(variable, rows, part)
        for name, slot in slots.items():
            replace(slot, rows, kept[name])

    def native_rule(self, step: int, learning_rate: float) -> NativeRule | None:
        """Return what native code has to know of a step of this rule; None if it has no such rule.

        A subclass of one that has must not inherit it, since its `change` may be another.
        """
        del step, learning_rate
        return None

    @abstractmethod
    def change(self, slots: Slots, gradient: Array, step: int, learning_rate: float) -> Array:
        """Return the change to add to the array, and update the slots."""
