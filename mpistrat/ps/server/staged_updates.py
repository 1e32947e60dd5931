"""Keep what workers push in a round, and apply it as one update when the round ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mpistrat.errors import UsageError
from mpistrat.ps.server.optimizer_update import OptimizerUpdate
from mpistrat.tables.reduction_ops import widened
from mpistrat.tables.rows import add_rows, check_result
from mpistrat.types import Array

__all__ = ["StagedUpdates"]


class StagedUpdates:
    """The updates of this round, by the calls that gave them.

    Notes
    -----
    Each is kept apart, so that a call that ran twice counts once, and sums do not depend on who
    was faster: a round needs memory for the gradients of all its calls.
    """

    def __init__(self) -> None:
        self._given: dict[int, list[tuple[int, OptimizerUpdate | None]]] = {}

    def add(self, call: int, key: int, update: OptimizerUpdate | None) -> None:
        """Keep what a call gives to a variable: an update, or None for one more in a count."""
        self._given.setdefault(call, []).append((key, update))

    def end(self, calls: Sequence[int]) -> list[tuple[int, OptimizerUpdate | None]]:
        """Return what is to be done, summed over `calls` in their order; forget all else.

        Raises
        ------
        UsageError
            A variable's gradient came as rows from one call, and as a whole from another.
        """
        given, self._given = self._given, {}
        by_key: dict[int, list[OptimizerUpdate | None]] = {}
        for call in calls:
            for key, update in given.get(call, ()):
                by_key.setdefault(key, []).append(update)
        return [(key, _summed(key, updates)) for key, updates in by_key.items()]


def _summed(key: int, updates: Sequence[OptimizerUpdate | None]) -> OptimizerUpdate | None:
    first = updates[0]
    rest = [update for update in updates if update is not None]
    if first is None or len(rest) < len(updates):
        return None  # a count: one more for the round
    are_rows = [update.rows is not None for update in rest]
    if any(are_rows) != all(are_rows):
        raise UsageError(
            f"variable {key} got a gradient of rows from {sum(are_rows)} functions of a round, and"
            f" a whole one from {len(rest) - sum(are_rows)}; expected the same kind from all"
        )
    if len(rest) == 1:
        return first
    if first.rows is None:
        return replace(first, gradient=_sum([update.gradient for update in rest]))
    rows, gradient = _sum_of_rows(rest)
    return replace(first, rows=rows, gradient=gradient)


def _sum(gradients: Sequence[Array]) -> Array:
    """Return the sum; of half types as float32, rounded once."""
    dtype = gradients[0].dtype
    total = gradients[0].astype(widened("sum", dtype))
    for gradient in gradients[1:]:
        total += gradient
    return total.astype(dtype, copy=False)


def _sum_of_rows(updates: Sequence[OptimizerUpdate]) -> tuple[Array, Array]:
    """Return the rows that any update has, each once, and the sums of their gradients."""
    gradients = np.concatenate([update.gradient for update in updates])
    rows, places = np.unique(
        np.concatenate([np.asarray(update.rows) for update in updates]), return_inverse=True
    )
    total = np.zeros((rows.size, *gradients.shape[1:]), gradients.dtype)
    check_result(add_rows(total, places.astype(np.int64), gradients), "a round")
    return rows, total
