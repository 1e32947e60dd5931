"""Fit the parameters of a machine to measured collectives, and say how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from mpistrat.bench.cost_model.fitting.least_squares import relative_fit
from mpistrat.bench.cost_model.fitting.measurements import Measured, check_sizes
from mpistrat.bench.cost_model.formulas.counts import NAMES, NETWORK, Counts
from mpistrat.bench.cost_model.formulas.library import call
from mpistrat.types import Array

__all__ = ["Band", "MachineFit", "fit_machine"]

_SEED, _RESAMPLES, _FOLDS = 20261126, 200, 10
_OPTIONAL = ("sends", "reduced", "copied")
_BAND = (2.5, 97.5)
_NEAR = 20  # measured calls, at least, whose errors a prediction may have


@dataclass(frozen=True)
class Band:
    """A predicted time in seconds, and where 95 % of measured ones are expected."""

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
    unseen
        float64, of each point as predicted by a fit that had not seen it: predicted seconds, and
        measured over predicted time. Two rows.
    draws
        A number between 0 and 1 for each resample: which of such ratios it takes.
    used
        The parameters that cross-validation kept, or that are assumed.
    measured
        What was fitted.
    """

    parameters: Array
    resampled: Array
    unseen: Array
    draws: Array
    used: tuple[str, ...]
    measured: tuple[Measured, ...]

    @property
    def errors(self) -> Array:
        """The relative errors of points that the fit had not seen."""
        errors: Array = np.abs(1 / self.unseen[1] - 1)
        return errors

    @property
    def has_network(self) -> bool:
        """Whether messages between nodes have a cost: were measured, or are assumed."""
        return bool(self.parameters[NAMES.index("wire_bytes")] > 0)

    @property
    def most_ranks(self) -> int:
        """The most ranks of any measurement."""
        return max(one.layout.ranks for one in self.measured)

    @property
    def ranks_per_node(self) -> int:
        """The most ranks that a node of several had, or one alone where there was but one."""
        several = [one.layout.most for one in self.measured if one.layout.nodes > 1]
        return max(several or [one.layout.most for one in self.measured])

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

    def band(self, counts: Counts, offset_s: float = 0.0) -> Band:
        """Return the predicted time with its band; `offset_s` is added to all of it.

        Each resample predicts, and is off by as much as one of those measured calls was that
        takes about as long.
        """
        value = self.seconds(counts)
        if value <= 0:
            return Band(offset_s, offset_s, offset_s)
        distance = np.abs(np.log(self.unseen[0] / value))
        near = np.argsort(distance, kind="stable")[: max(_NEAR, len(distance) // 4)]
        ratios = np.quantile(self.unseen[1, near], self.draws)
        low, high = np.percentile(self.resampled @ counts.vector() * ratios, _BAND)
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
    choices = [_masked(counts, without) for without in _subsets()]
    ratios = [times / _out_of_fold(one, times, folds) for one in choices]
    best = int(np.argmin([_score(one) for one in ratios]))
    chosen = choices[best]
    groups = [(one.op, one.layout) for one in measured]
    drawn = [_resample(groups, random) for _ in range(_RESAMPLES)]
    return MachineFit(
        relative_fit(chosen, times),
        np.array([relative_fit(chosen[rows], times[rows]) for rows in drawn]),
        np.array([times / ratios[best], ratios[best]]),
        random.random(_RESAMPLES),
        tuple(name for name, column in zip(NAMES, chosen.T, strict=True) if column.any()),
        tuple(measured),
    )


def _subsets() -> list[tuple[str, ...]]:
    """Return which parameters may be left out, nothing first; of a node's bytes one stays in."""
    switches = product((True, False), repeat=len(_OPTIONAL))
    subsets = [
        tuple(name for name, is_kept in zip(_OPTIONAL, kept, strict=True) if not is_kept)
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
        predicted[is_out] = counts[is_out] @ relative_fit(counts[~is_out], times[~is_out])
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
