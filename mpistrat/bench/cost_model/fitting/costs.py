"""Fit the costs of a machine; a cost that was not measured is that of what is most like it."""

from __future__ import annotations

import numpy as np

from mpistrat.bench.cost_model.fitting.least_squares import relative_fit
from mpistrat.bench.cost_model.formulas.counts import NAMES
from mpistrat.types import Array

__all__ = ["fit_costs", "known_costs"]

_ALIKE = [NAMES.index(name) for name in ("steps", "node_steps")]


def fit_costs(counts: Array, times: Array) -> Array:
    """Return the costs in seconds, float64, in the order of `NAMES`.

    A step within a NUMA domain costs what one across domains does if only the other was measured,
    and the other way round.

    Parameters
    ----------
    counts
        float64, a row of `NAMES` for each measurement.
    times
        float64, in seconds.
    """
    costs = relative_fit(counts, times)
    for one, other in (_ALIKE, _ALIKE[::-1]):
        if not counts[:, one].any():
            costs[one] = costs[other]
    return costs


def known_costs(counts: Array) -> Array:
    """Return, as bool in the order of `NAMES`, which costs a fit to these counts knows."""
    known: Array = np.any(counts, axis=0)
    known[_ALIKE] = known[_ALIKE].any()
    return known
