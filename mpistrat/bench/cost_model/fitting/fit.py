"""Fit the parameters of a machine to measured collectives, and say how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from mpistrat.bench.cost_model.fitting.costs import fit_costs
from mpistrat.bench.cost_model.fitting.measurements import Measured, check_sizes
from mpistrat.bench.cost_model.fitting.unseen import (
    Growth,
    Reach,
    Unseen,
    layouts_unseen,
    reach_of,
    split_time,
)
from mpistrat.bench.cost_model.formulas.counts import NAMES, NETWORK, Counts
from mpistrat.bench.cost_model.formulas.layout import Layout, Node, layout_of
from mpistrat.bench.cost_model.formulas.library import call
from mpistrat.types import Array

__all__ = ["BAND", "Band", "MachineFit", "fit_machine"]

BAND = (
    "It is made of the errors of calls and of larger layouts that a fit had not seen, and is wider"
    " with each doubling of ranks or nodes beyond the measured ones; how likely a measured time is"
    " in it is not known there."
)
"""What a reader is told of bands."""

_SEED, _RESAMPLES, _FOLDS = 20261126, 200, 10
_OPTIONAL = ("sends", "reduced", "copied", "far_bytes")
_BAND = (2.5, 97.5)


@dataclass(frozen=True)
class Band:
    """A predicted time in seconds, and how far errors like those of unseen calls reach."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class MachineFit:
    """The parameters of a machine.

    Attributes
    ----------
    parameters
        float64, seconds for each of `NAMES`; 0 where the fit has no use for it.
    resampled
        The same of each resample of the measurements, a row each.
    errors
        float64, the relative errors of points in ten-fold cross-validation.
    latency, volume
        The errors of predictions that are mostly latency, and mostly bandwidth, of calls and
        layouts that a fit had not seen.
    used
        The parameters that cross-validation kept, or that are assumed.
    measured
        What was fitted.
    """

    parameters: Array
    resampled: Array
    errors: Array
    latency: Growth
    volume: Growth
    used: tuple[str, ...]
    measured: tuple[Measured, ...]

    @property
    def has_network(self) -> bool:
        """Whether messages between nodes have a cost: were measured, or are assumed."""
        return bool(self.parameters[NAMES.index("wire_bytes")] > 0)

    @property
    def most_ranks(self) -> int:
        """The most ranks of any measurement."""
        return self.reach.ranks

    @cached_property
    def reach(self) -> Reach:
        """The most ranks and nodes of any measurement."""
        return reach_of(one.layout for one in self.measured)

    @property
    def node(self) -> Node:
        """The fullest node of those of several, or one alone where there was but one."""
        several = [one.layout for one in self.measured if one.layout.nodes > 1]
        layouts = several or [one.layout for one in self.measured]
        return max((one.node for one in layouts), key=lambda one: (one.ranks, one.domains))

    def node_of(self, ranks: int) -> Node:
        """Return a full node of `ranks`, on as many NUMA domains as so many measured ranks were.

        More ranks than were measured are on as many domains as these.
        """
        return Node(ranks, layout_of(min(ranks, self.node.ranks), self.node).domains)

    def with_network(self, latency_s: float, bytes_per_s: float) -> MachineFit:
        """Return the fit with a network that is assumed, not measured."""
        parameters, resampled = self.parameters.copy(), self.resampled.copy()
        for name, value in (
            ("messages", latency_s),
            ("sends", 0),
            ("wire_bytes", 1 / bytes_per_s),
        ):
            parameters[NAMES.index(name)] = resampled[:, NAMES.index(name)] = value
        used = tuple(name for name in NAMES if name in self.used or name in NETWORK)
        return replace(self, parameters=parameters, resampled=resampled, used=used)

    def seconds(self, counts: Counts) -> float:
        """Return the predicted time of what `counts` describes."""
        return float(counts.vector() @ self.parameters)

    def band(self, counts: Counts, layout: Layout, offset_s: float = 0.0) -> Band:
        """Return the predicted time with its band; `offset_s` is added to all of it.

        Latencies and the time for bytes are each off by as much as unseen calls of that kind
        were, the more the further `layout` is from those measured; and so are the parameters.
        """
        value = self.seconds(counts)
        doublings = self.reach.doublings(layout)
        latency, volume = (
            np.percentile(part, _BAND) for part in split_time(counts.vector(), self.resampled.T)
        )
        ends = self.latency.ends(doublings), self.volume.ends(doublings)
        low, high = (latency[end] * ends[0][end] + volume[end] * ends[1][end] for end in (0, 1))
        return Band(value + offset_s, min(low, value) + offset_s, max(high, value) + offset_s)

    def spread(self, name: str) -> tuple[float, float, float]:
        """Return a parameter and the ends of its 95 % interval."""
        index = NAMES.index(name)
        low, high = np.percentile(self.resampled[:, index], _BAND)
        return float(self.parameters[index]), float(low), float(high)


def fit_machine(measured: Sequence[Measured]) -> MachineFit:
    """Fit the parameters by cross-validation.

    Of the parameters that a machine may hide behind others (gap between messages, reduction,
    copies) those are kept without which points are predicted worse that the fit has not seen.

    Raises
    ------
    UsageError
        There are too few measurements, or of too few sizes; the message has a command.
    """
    check_sizes(measured)
    counts = np.array([call(one.op, one.nbytes, one.layout).vector() for one in measured])
    times = np.array([one.time_s for one in measured])
    random = np.random.default_rng(_SEED)
    folds = random.permutation(len(times)) % _FOLDS
    choices = [_masked(counts, without) for without in _subsets(counts)]
    ratios = [times / _out_of_fold(one, times, folds) for one in choices]
    best = int(np.argmin([_score(one) for one in ratios]))
    chosen = choices[best]
    groups = [(one.op, one.layout) for one in measured]
    drawn = [_resample(groups, random) for _ in range(_RESAMPLES)]
    parameters = fit_costs(chosen, times)
    unseen = _calls_unseen(chosen, parameters, ratios[best]) + layouts_unseen(
        chosen, times, [one.layout for one in measured]
    )
    return MachineFit(
        parameters,
        np.array([fit_costs(chosen[rows], times[rows]) for rows in drawn]),
        np.abs(1 / ratios[best] - 1),
        unseen.growth(is_latency=True),
        unseen.growth(is_latency=False),
        tuple(name for name, column in zip(NAMES, chosen.T, strict=True) if column.any()),
        tuple(measured),
    )


def _calls_unseen(counts: Array, parameters: Array, ratios: Array) -> Unseen:
    """Return the points of cross-validation: calls of layouts that were measured."""
    latency, volume = split_time(counts, parameters)
    shares = latency / np.maximum(latency + volume, 1e-12)
    return Unseen(shares, ratios, np.zeros(len(ratios)))


def _subsets(counts: Array) -> list[tuple[str, ...]]:
    """Return which parameters may be left out, nothing first; of a node's bytes one stays in."""
    optional = [name for name in _OPTIONAL if counts[:, NAMES.index(name)].any()]
    switches = product((True, False), repeat=len(optional))
    subsets = [
        tuple(name for name, is_kept in zip(optional, kept, strict=True) if not is_kept)
        for kept in switches
    ]
    return [one for one in subsets if not {"copied", "reduced"} <= set(one)]


def _masked(counts: Array, without: Sequence[str]) -> Array:
    keep = np.array([name not in without for name in NAMES], np.float64)
    masked: Array = counts * keep
    return masked


def _out_of_fold(counts: Array, times: Array, folds: Array) -> Array:
    """Predict each point by a fit to the other folds."""
    predicted = np.zeros(len(times))
    for fold in range(int(folds.max()) + 1):
        is_out = folds == fold
        predicted[is_out] = counts[is_out] @ fit_costs(counts[~is_out], times[~is_out])
    return np.maximum(predicted, 1e-12)


def _score(ratios: Array) -> float:
    """Return the mean size of log(measured/predicted): less is better, and outliers count once."""
    return float(np.mean(np.minimum(np.abs(np.log(ratios)), 1.0)))


def _resample(groups: Sequence[object], random: np.random.Generator) -> Array:
    """Draw as many rows of each group as it has, so that each level stays in."""
    places: dict[object, list[int]] = {}
    for row, group in enumerate(groups):
        places.setdefault(group, []).append(row)
    drawn = [random.choice(rows, len(rows)) for rows in places.values()]
    result: Array = np.concatenate(drawn)
    return result
