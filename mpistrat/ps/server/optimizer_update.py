"""One update of an optimizer, as it is sent to a parameter server."""

from __future__ import annotations

from dataclasses import dataclass

from mpistrat.tables.update_rules import Rule
from mpistrat.types import Array

__all__ = ["OptimizerUpdate"]


@dataclass(frozen=True)
class OptimizerUpdate:
    """The gradient of a variable, and what else an optimizer's rule needs.

    Attributes
    ----------
    rule
        The arithmetic.
    slots
        The keys of the variables that the rule keeps beside this one, by its names for them.
    rows
        Of which rows the gradient is, each once; None: of all.
    gradient
        Of the variable's shape, or one row for each of `rows`.
    step, learning_rate
        As for ``Rule.apply``.
    """

    rule: Rule
    slots: dict[str, int]
    rows: Array | None
    gradient: Array
    step: int
    learning_rate: float
