"""Compare predicted with measured times that the fit has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpistrat.bench.cost_model.fitting.fit import MachineFit
from mpistrat.bench.cost_model.fitting.measurements import Measured
from mpistrat.bench.cost_model.formulas.library import call
from mpistrat.bench.cost_model.projection.series import step_band
from mpistrat.bench.cost_model.projection.step import MeasuredStep
from mpistrat.bench.results.point import Point
from mpistrat.errors import UsageError

__all__ = ["Comparison", "compare", "compare_steps", "hold_out", "median_error"]

_KEYS = ("ranks", "nodes")


@dataclass(frozen=True)
class Comparison:
    """A predicted and a measured time in seconds."""

    what: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """The relative error, below 0 where the measured time is longer."""
        return self.predicted / self.measured - 1


def compare(fit: MachineFit, measured: Sequence[Measured]) -> list[Comparison]:
    """Predict collectives."""
    return [
        Comparison(str(one), fit.seconds(call(one.op, one.nbytes, one.layout)), one.time_s)
        for one in measured
    ]


def compare_steps(fit: MachineFit, steps: Sequence[MeasuredStep]) -> list[Comparison]:
    """Predict steps of several ranks from their own computation and the fitted all-reduce.

    Those that hide communication are left out: how much they hide is known from their time alone.
    """
    return [
        Comparison(one.work.title, step_band(fit, one.work, one.layout, False).value, one.time_s)
        for one in steps
        if one.work.hidden == 0
        and one.layout.ranks > 1
        and (fit.has_network or one.layout.nodes == 1)
    ]


def median_error(comparisons: Sequence[Comparison]) -> float:
    """Return the median size of the relative errors."""
    return float(np.median([abs(one.error) for one in comparisons]))


def hold_out(points: Sequence[Point], options: Sequence[str]) -> tuple[list[Point], list[Point]]:
    """Divide points in those to fit and those to predict.

    Parameters
    ----------
    options
        Each such as ``ranks=4,nodes=4``: points that have all of it are held out.

    Raises
    ------
    UsageError
        An option is something else, or no point has it.
    """
    wanted = [_parsed(option) for option in options]
    held = [one for one in points if any(_matches(one, each) for each in wanted)]
    for option, each in zip(options, wanted, strict=True):
        if not any(_matches(one, each) for one in points):
            have = sorted({f"ranks={p.setup.ranks},nodes={p.setup.nodes}" for p in points})
            raise UsageError(f"--hold-out {option}: no point has that; expected {', '.join(have)}")
    return [one for one in points if one not in held], held


def _parsed(option: str) -> dict[str, int]:
    parts = [part.partition("=") for part in option.split(",")]
    if not all(
        name.strip() in _KEYS and value.strip().isdecimal() and value.strip().isascii()
        for name, _, value in parts
    ):
        raise UsageError(f"--hold-out {option!r}: expected such as ranks=4,nodes=4, or nodes=4")
    return {name.strip(): int(value) for name, _, value in parts}


def _matches(point: Point, wanted: dict[str, int]) -> bool:
    return all(getattr(point.setup, name) == value for name, value in wanted.items())
