"""One update of an optimizer: what travels to a parameter server, and how it is applied there."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from mpistrat.ps.server.context import ServerContext
from mpistrat.tables.rule import Rule
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

    def apply(self, context: ServerContext, key: int) -> None:
        """Change a variable of a ps, and its slots, which are variables there too."""
        shard, step = context.shard(key), (self.step, self.learning_rate)
        slots = {name: context.shard(slot) for name, slot in self.slots.items()}
        if self.rows is not None and self.rule.leaves_rows:
            part = shard.read_rows(self.rows)
            kept = {name: slot.read_rows(self.rows) for name, slot in slots.items()}
            self.rule.apply(part, kept, self.gradient, *step)
            shard.assign_rows(self.rows, part)
            for name, slot in slots.items():
                slot.assign_rows(self.rows, kept[name])
            return
        if self.rows is None:
            shard.apply(self.rule, slots, self.gradient, *step)
            return
        # If the rule raises, none of these changes ends: readers keep the old variable and slots,
        # unless there was no memory for a copy of one (see `OwnedStore`).
        with ExitStack() as stack:
            arrays = {n: stack.enter_context(slot.rewriting()) for n, slot in slots.items()}
            shard.apply_rows(self.rule, arrays, self.rows, self.gradient, *step)
