"""The update rules of the optimizers: gradient descent, Adagrad and Adam.

Each says its arithmetic twice: `change` in NumPy, and by a `NativeRule` for native code, which has
the same (kernels/cuda/update_rules.cuh), on the host and on GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpistrat.tables.native_updates import NativeRule
from mpistrat.tables.rule import Rule, Slots
from mpistrat.types import Array

__all__ = ["AdagradRule", "AdamRule", "Rule", "SGDRule"]


@dataclass(frozen=True)
class SGDRule(Rule):
    """Gradient descent, with momentum unless that is 0."""

    momentum: float = 0.0
    nesterov: bool = False

    def initial_slots(self) -> dict[str, float]:
        """Return the velocity slot, if momentum is used."""
        return {"momentum": 0.0} if self.momentum else {}

    def change(self, slots: Slots, gradient: Array, step: int, learning_rate: float) -> Array:
        """Return the velocity, or with Nesterov momentum the look-ahead step."""
        change = gradient * -learning_rate
        if not self.momentum:
            return change
        velocity = slots["momentum"]
        velocity *= self.momentum
        velocity += change
        return velocity * self.momentum + change if self.nesterov else velocity

    def native_rule(self, step: int, learning_rate: float) -> NativeRule | None:
        """Return it, of this class itself."""
        if type(self) is not SGDRule:
            return None
        if not self.momentum:
            return NativeRule("Descent", (), (-learning_rate,))
        name = "Nesterov" if self.nesterov else "Momentum"
        return NativeRule(name, ("momentum",), (-learning_rate, self.momentum))


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

    def change(self, slots: Slots, gradient: Array, step: int, learning_rate: float) -> Array:
        """Return the gradient over the root of the sum of its squares."""
        total = slots["accumulator"]
        total += gradient * gradient
        # Epsilon is within the root, as in Keras.
        return gradient * -learning_rate / np.sqrt(total + self.epsilon)

    def native_rule(self, step: int, learning_rate: float) -> NativeRule | None:
        """Return it, of this class itself."""
        if type(self) is not AdagradRule:
            return None
        return NativeRule("Adagrad", ("accumulator",), (-learning_rate, self.epsilon))


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

    def change(self, slots: Slots, gradient: Array, step: int, learning_rate: float) -> Array:
        """Return the first moment over the root of the second, both freed of their bias."""
        first, second = slots["momentum"], slots["velocity"]
        first += (gradient - first) * (1 - self.beta_1)
        second += (gradient * gradient - second) * (1 - self.beta_2)
        if self.amsgrad:
            largest = slots["velocity_hat"]
            second = np.maximum(largest, second, out=largest)
        # As in Keras, epsilon is added to the root before the correction of its bias.
        return first * self._factor(step, learning_rate) / (np.sqrt(second) + self.epsilon)

    def _factor(self, step: int, learning_rate: float) -> float:
        scale = learning_rate * np.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        return float(-scale)  # of Python: a NumPy one of 64 bits would make float32 arrays float64

    def native_rule(self, step: int, learning_rate: float) -> NativeRule | None:
        """Return it, of this class itself."""
        if type(self) is not AdamRule:
            return None
        slots = ("momentum", "velocity", "velocity_hat")[: 3 if self.amsgrad else 2]
        numbers = (1 - self.beta_1, 1 - self.beta_2, self.epsilon)
        name = "AmsGrad" if self.amsgrad else "Adam"
        return NativeRule(name, slots, (self._factor(step, learning_rate), *numbers))
