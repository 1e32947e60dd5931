"""The update rules of the optimizers: how a gradient changes an array and its slots.

A rule changes a variable and its *slots* (arrays of the same shape that it keeps with it) in
place. It has no state of its own, so the same one serves mirrored copies and shards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat.tables.rows import replace, taken
from mpistrat.types import Array

__all__ = ["AdagradRule", "AdamRule", "Rule", "SGDRule"]

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
            A factor of the move.
        """
        dtype = self.slot_dtype(variable.dtype)
        move = self.move(slots, gradient.astype(dtype, copy=False), step, learning_rate)
        variable[...] = np.add(variable.astype(dtype, copy=False), move)

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
            # A zero gradient moves other rows, too (momentum), so all rows are updated.
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

    @abstractmethod
    def move(self, slots: Slots, gradient: Array, step: int, learning_rate: float) -> Array:
        """Return the change to add to the array, and update the slots."""


@dataclass(frozen=True)
class SGDRule(Rule):
    """Gradient descent, with momentum unless that is 0."""

    momentum: float = 0.0
    nesterov: bool = False

    def initial_slots(self) -> dict[str, float]:
        """Return the velocity slot, if momentum is used."""
        return {"momentum": 0.0} if self.momentum else {}

    def move(self, slots: Slots, gradient: Array, step: int, learning_rate: float) -> Array:
        """Return the velocity, or with Nesterov momentum the look-ahead step."""
        change = gradient * -learning_rate
        if not self.momentum:
            return change
        velocity = slots["momentum"]
        velocity *= self.momentum
        velocity += change
        return velocity * self.momentum + change if self.nesterov else velocity


@dataclass(frozen=True)
class AdagradRule(Rule):
    """Steps that shrink with the sum of the squared gradients (Duchi et al., 2011)."""

    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7

    def initial_slots(self) -> dict[str, float]:
        """Return the sum of squares."""
        return {"accumulator": self.initial_accumulator_value}

    @property
    def leaves_rows(self) -> bool:
        """True: a zero gradient changes neither the sum nor the array."""
        return True

    def move(self, slots: Slots, gradient: Array, step: int, learning_rate: float) -> Array:
        """Return the gradient over the root of the sum of its squares."""
        total = slots["accumulator"]
        total += gradient * gradient
        # Epsilon is within the root, as in Keras.
        return gradient * -learning_rate / np.sqrt(total + self.epsilon)


@dataclass(frozen=True)
class AdamRule(Rule):
    """Estimates of the gradient's first and second moments (Kingma and Ba, 2015)."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    amsgrad: bool = False

    def initial_slots(self) -> dict[str, float]:
        """Return both moments, and with AMSGrad the largest second one."""
        slots = {"momentum": 0.0, "velocity": 0.0}
        return {**slots, "velocity_hat": 0.0} if self.amsgrad else slots

    def move(self, slots: Slots, gradient: Array, step: int, learning_rate: float) -> Array:
        """Return the first moment over the root of the second, both freed of their bias."""
        first, second = slots["momentum"], slots["velocity"]
        first += (gradient - first) * (1 - self.beta_1)
        second += (gradient * gradient - second) * (1 - self.beta_2)
        if self.amsgrad:
            largest = slots["velocity_hat"]
            second = np.maximum(largest, second, out=largest)
        # As in Keras, epsilon is added to the root before the correction of its bias.
        scale = learning_rate * np.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        # A Python float: a NumPy one of 64 bits would make float32 arrays float64.
        return first * float(-scale) / (np.sqrt(second) + self.epsilon)
