"""Fit parts that have no formula: c0 + c1 · p^a · log2(p)^b, the exponents by cross-validation.

This is the performance-model normal form with two terms, as Extra-P fits it (Calotoiu, Hoefler,
Poke, Wolf: Using automated performance modeling to find scalability bugs in complex codes. SC'13,
doi 10.1145/2503210.2503277).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from mpistrat.bench.cost_model.fitting.least_squares import non_negative
from mpistrat.types import Array

__all__ = ["NormalForm", "fit_normal_form"]

_POWERS = tuple(
    Fraction(n, d) for n, d in ((0, 1), (1, 4), (1, 3), (1, 2), (2, 3), (1, 1), (2, 1))
)
_LOGS = (0, 1, 2)
_LEAST = 4  # numbers of ranks: two parameters and two exponents
_BETTER = 0.8  # a growing form has to predict unseen points so much better than a constant


@dataclass(frozen=True)
class NormalForm:
    """A quantity by the number of ranks.

    Attributes
    ----------
    constant, slope
        c0 and c1, in the quantity's unit.
    power, log
        a and b; both 0 where nothing grows.
    error
        The mean relative error of points that the fit had not seen; None of too few points.
    most
        The most ranks that were measured.
    """

    constant: float
    slope: float
    power: Fraction
    log: int
    error: float | None
    most: int

    @property
    def grows(self) -> bool:
        """Whether it depends on the ranks."""
        return self.slope > 0

    def value(self, ranks: int) -> float:
        """Return the quantity at so many ranks."""
        return self.constant + self.slope * _term(ranks, self.power, self.log)

    def __str__(self) -> str:
        """Write it as a formula."""
        if not self.grows:
            return f"{self.constant:.3g}"
        power = "" if self.power == 0 else " p" if self.power == 1 else f" p^({self.power})"
        log = "" if self.log == 0 else " log2(p)" if self.log == 1 else f" log2(p)^{self.log}"
        return f"{self.constant:.3g} + {self.slope:.3g}{power}{log}"


def fit_normal_form(by_ranks: Mapping[int, float]) -> NormalForm:
    """Return the form that predicts each point best from the others.

    Of fewer than four numbers of ranks nothing can be said about growth: it is a constant then,
    without an error.
    """
    ranks = sorted(by_ranks)
    values = np.array([by_ranks[one] for one in ranks])
    if len(ranks) < _LEAST:
        return NormalForm(float(np.median(values)), 0.0, Fraction(0), 0, None, ranks[-1])
    best, least = (Fraction(0), 0), _left_out_error(ranks, values, Fraction(0), 0)
    allowed = least * _BETTER
    for power, log in product(_POWERS, _LOGS):
        if power == 0 and log == 0:
            continue
        error = _left_out_error(ranks, values, power, log)
        if error < min(least, allowed):
            best, least = (power, log), error
    constant, slope = _coefficients(ranks, values, *best)
    return NormalForm(constant, slope, *best, least, ranks[-1])


def _term(ranks: int, power: Fraction, log: int) -> float:
    if power == 0 and log == 0:
        return 0.0
    return float(ranks ** float(power) * np.log2(ranks) ** log)


def _coefficients(
    ranks: Sequence[int], values: Array, power: Fraction, log: int
) -> tuple[float, float]:
    terms = np.array([[1.0, _term(one, power, log)] for one in ranks])
    found = non_negative(terms / values[:, None], np.ones(len(values)))
    return float(found[0]), float(found[1])


def _left_out_error(ranks: Sequence[int], values: Array, power: Fraction, log: int) -> float:
    """Return the mean relative error of each point, predicted from all others."""
    errors = []
    for out, one in enumerate(ranks):
        rest = [other for other in ranks if other != one]
        constant, slope = _coefficients(rest, np.delete(values, out), power, log)
        errors.append(abs(constant + slope * _term(one, power, log) - values[out]) / values[out])
    return float(np.mean(errors))
