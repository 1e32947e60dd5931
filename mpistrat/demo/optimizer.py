"""Gradient descent with momentum, on the API that optimizers of tf.distribute use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mpistrat
from mpistrat.types import Array

__all__ = ["Momentum"]


class Momentum:
    """Moves variables against gradients that are already combined over the replicas.

    Make it in the scope that the variables were made in: it keeps a velocity for each.

    Parameters
    ----------
    variables
        What it moves.
    learning_rate
        Step for a gradient; it may be changed at any time, alike on all ranks.
    momentum
        The share of the last move that is made again.
    """

    def __init__(
        self,
        variables: Sequence[mpistrat.Variable],
        learning_rate: float,
        momentum: float = 0.9,
    ) -> None:
        self.learning_rate = learning_rate
        self._momentum = momentum
        self._variables = list(variables)
        self.velocities = [
            mpistrat.Variable(np.zeros(v.shape, v.dtype), trainable=False, name=f"velocity_{i}")
            for i, v in enumerate(self._variables)
        ]

    def apply(self, gradients: Sequence[Array]) -> None:
        """Make one move of every variable; called by all replicas, with equal gradients."""
        replica: Any = mpistrat.get_replica_context()
        replica.merge_call(self._update, args=(list(gradients),))

    def _update(self, strategy: mpistrat.Strategy, gradients: list[Array]) -> None:
        """Let each copy of a variable on this rank be moved by its own gradient."""
        rows = zip(self._variables, self.velocities, gradients, strict=True)
        for variable, velocity, gradient in rows:
            strategy.extended.update(variable, self._move, args=(velocity, gradient))

    def _move(
        self, variable: mpistrat.Variable, velocity: mpistrat.Variable, gradient: Array
    ) -> None:
        velocity.assign(self._momentum * velocity.value() - self.learning_rate * gradient)
        variable.assign_add(velocity)
