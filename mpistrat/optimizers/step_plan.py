"""Cache what a step derives from its variables alone, for later steps with the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from mpistrat.optimizers.gradients import (
    Trained,
    as_gradient,
    container,
    in_words,
    pair_of,
    strategy_of,
)

if TYPE_CHECKING:
    from mpistrat.optimizers.base import Optimizer
    from mpistrat.strategy.base import Strategy

__all__ = ["StepPlan", "plan_of", "remember", "separated"]

_MAX_PLANS = 4  # of an optimizer, such as one that trains two networks by turns
_PLAIN = {np.dtype(name) for name in ("float16", "float32", "float64")}


class StepPlan:
    """The variables of a step, and what follows from them alone.

    Parameters
    ----------
    given
        What `apply_gradients` got as variables, with those that have a gradient.

    Attributes
    ----------
    variables
        The distributed variables that those are, or are copies of.
    what
        Whose gradients these are (`in_words`).
    slots
        Of each variable what the optimizer keeps of it, by name, once it was built; None for a
        `ShardedVariable`, whose parts have slots of their own.
    """

    def __init__(self, given: list[Any]) -> None:
        self.given = given
        self.variables: list[Trained] = [container(variable) for variable in given]
        strategy_of(self.variables)  # raises if there are several
        self._strategy = self.variables[0].distribute_strategy
        self._shapes = [variable.shape for variable in self.variables]
        self.what = in_words(self.variables)
        self.slots: list[Mapping[str, Any] | None] | None = None

    @property
    def strategy(self) -> Strategy:
        """The strategy of the variables; that of this code, where they have none."""
        strategy: Strategy | None = self._strategy
        return strategy_of(self.variables) if strategy is None else strategy

    def checked(self, gradients: Sequence[Any]) -> list[Any]:
        """Return the gradients as `as_gradient` does."""
        return [
            gradient
            if type(gradient) is np.ndarray
            and gradient.shape == shape
            and gradient.dtype in _PLAIN
            else as_gradient(gradient, variable)
            for gradient, shape, variable in zip(
                gradients, self._shapes, self.variables, strict=True
            )
        ]


# Not an attribute, since a checkpoint saves what the attributes of an optimizer lead to.
_plans: WeakKeyDictionary[Optimizer, list[StepPlan]] = WeakKeyDictionary()


def separated(grads_and_vars: Iterable[tuple[Any, Trained]]) -> tuple[list[Any], list[Any]]:
    """Return the gradients that are not None, and their variables."""
    pairs = [
        pair if type(pair) is tuple and len(pair) == 2 else pair_of(pair)
        for pair in grads_and_vars
    ]
    kept = [pair for pair in pairs if pair[0] is not None]
    return [gradient for gradient, _ in kept], [variable for _, variable in kept]


def plan_of(optimizer: Optimizer, given: list[Any]) -> StepPlan:
    """Return the plan of a step with these variables: a new one, if none is remembered."""
    for plan in _plans.get(optimizer, ()):
        if len(plan.given) == len(given) and all(map(is_, plan.given, given)):
            return plan
    return StepPlan(given)


def remember(optimizer: Optimizer, plan: StepPlan) -> None:
    """Use `plan` again in later steps; the optimizer keeps its variables anyway."""
    # A new list, since another thread may go through the old one.
    _plans[optimizer] = [plan, *_plans.get(optimizer, ())][:_MAX_PLANS]
