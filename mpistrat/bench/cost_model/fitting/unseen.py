"""Widen predictions by the errors of calls and layouts that a fit had not seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from mpistrat.bench.cost_model.fitting.costs import fit_costs, known_costs
from mpistrat.bench.cost_model.formulas.counts import LATENCY, NAMES
from mpistrat.bench.cost_model.formulas.layout import Layout
from mpistrat.types import Array

__all__ = ["Growth", "Reach", "Unseen", "layouts_unseen", "reach_of", "split_time"]

_QUANTILE = 0.975  # of errors in each direction: 95 % of them are between
_IS_LATENCY = np.array([name in LATENCY for name in NAMES], np.float64)
_LATENCY_BOUND = 0.5  # share of latencies in a prediction from which it counts as such


@dataclass(frozen=True)
class Reach:
    """The most ranks and nodes that a fit has seen."""

    ranks: int
    nodes: int

    def doublings(self, layout: Layout) -> float:
        """Return how often ranks or nodes double from here to `layout`; 0 within."""
        return math.log2(max(layout.ranks / self.ranks, layout.nodes / self.nodes, 1))


def reach_of(layouts: Iterable[Layout]) -> Reach:
    """Return how far layouts reach."""
    found = list(layouts)
    return Reach(max(one.ranks for one in found), max(one.nodes for one in found))


@dataclass(frozen=True)
class Unseen:
    """Points as predicted by fits that had not seen them.

    Attributes
    ----------
    shares
        float64, of latencies in the predicted time.
    ratios
        float64, measured over predicted time.
    doublings
        float64, of ranks or nodes, from the layouts of the fit to that of the point.
    """

    shares: Array
    ratios: Array
    doublings: Array

    def __add__(self, other: Unseen) -> Unseen:
        """Return both."""
        mine, theirs = _columns(self), _columns(other)
        return Unseen(*(np.concatenate(both) for both in zip(mine, theirs, strict=True)))

    def growth(self, is_latency: bool) -> Growth:
        """Return the errors of predictions that are mostly latency, or mostly bandwidth."""
        same = (self.shares > _LATENCY_BOUND) == is_latency
        if not same.any():
            same = np.ones(len(self.ratios), bool)
        ratios, doublings = self.ratios[same], self.doublings[same]
        return Growth(*_line(1 / ratios, doublings), *_line(ratios, doublings))


@dataclass(frozen=True)
class Growth:
    """By which factor measured times are below and above predicted ones.

    Attributes
    ----------
    below, above
        The factors within the measured layouts.
    below_more, above_more
        What each doubling of ranks or nodes beyond them adds to the factor.
    """

    below: float
    below_more: float
    above: float
    above_more: float

    def ends(self, doublings: float) -> tuple[float, float]:
        """Return the factors for the lower and the upper end of a band."""
        low = self.below + self.below_more * doublings
        return 1 / low, self.above + self.above_more * doublings


def split_time(counts: Array, parameters: Array) -> tuple[Array, Array]:
    """Return the latencies of predictions, and the rest.

    Parameters
    ----------
    counts
        float64, a column for each of `NAMES`; a row for each prediction, or one alone.
    parameters
        float64, a value for each of `NAMES`; a column for each resample, or one alone.
    """
    return (counts * _IS_LATENCY) @ parameters, (counts * (1 - _IS_LATENCY)) @ parameters


def layouts_unseen(counts: Array, times: Array, layouts: Sequence[Layout]) -> Unseen:
    """Predict the points of layouts that are left out of a fit.

    Left out are all layouts above a number of ranks, or above a number of nodes; unless the
    others have none of something that these cost.
    """
    found = Unseen(np.zeros(0), np.zeros(0), np.zeros(0))
    for held in _held_out(layouts):
        is_out = np.array([one in held for one in layouts])
        if not np.any(known_costs(counts[is_out]) & ~known_costs(counts[~is_out])):
            found += _predicted(counts, times, layouts, is_out)
    return found


def _held_out(layouts: Sequence[Layout]) -> set[frozenset[Layout]]:
    """Return the sets of layouts that are left out in turn, none of which is all."""
    every = frozenset(layouts)
    sets = {frozenset(o for o in every if o.ranks > one.ranks) for one in every}
    sets |= {frozenset(o for o in every if o.nodes > one.nodes) for one in every}
    return sets - {every, frozenset()}


def _predicted(counts: Array, times: Array, layouts: Sequence[Layout], is_out: Array) -> Unseen:
    parameters = fit_costs(counts[~is_out], times[~is_out])
    latency, volume = split_time(counts[is_out], parameters)
    whole = np.maximum(latency + volume, 1e-12)
    reach = reach_of(one for one, out in zip(layouts, is_out, strict=True) if not out)
    far = [reach.doublings(one) for one, out in zip(layouts, is_out, strict=True) if out]
    return Unseen(latency / whole, times[is_out] / whole, np.array(far))


def _columns(unseen: Unseen) -> tuple[Array, Array, Array]:
    return unseen.shares, unseen.ratios, unseen.doublings


def _line(factors: Array, doublings: Array) -> tuple[float, float]:
    """Return a factor that few errors exceed, and by how much it grows with each doubling.

    It grows at least as fast as if each doubling brought as much of an error as there is without.
    """
    near = doublings == 0
    start = _most(factors[near]) if near.any() else 1.0
    growths = [
        (_most(factors[doublings == one]) - start) / float(one)
        for one in np.unique(doublings)
        if one > 0
    ]
    return start, max([start - 1, *growths])


def _most(factors: Array) -> float:
    return max(float(np.quantile(factors, _QUANTILE)), 1.0)
