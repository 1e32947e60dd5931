"""`CostModel`: a fitted machine, what it was fitted to, and what it says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from mpistrat.bench.cost_model.fitting.fit import MachineFit
from mpistrat.bench.cost_model.fitting.measurements import Measured
from mpistrat.bench.cost_model.fitting.normal_form import NormalForm
from mpistrat.bench.cost_model.formulas.layout import Node, layout_of
from mpistrat.bench.cost_model.projection.other_parts import other_parts
from mpistrat.bench.cost_model.projection.series import Series, project, step_name
from mpistrat.bench.cost_model.projection.served import (
    ServedCall,
    question,
    saturations,
    served_calls,
)
from mpistrat.bench.cost_model.projection.statements import statements
from mpistrat.bench.cost_model.projection.step import StepWork, measured_steps
from mpistrat.bench.cost_model.projection.thresholds import MOST_RANKS
from mpistrat.bench.cost_model.validation import Comparison, compare, compare_steps
from mpistrat.bench.results.point import Point

__all__ = ["NEVER", "CostModel"]

NEVER = f"Does not happen up to {MOST_RANKS:,} ranks"
"""What comes before each of `CostModel.never`."""

_EXTRAPOLATED_FROM = 4  # times the most measured ranks


@dataclass(frozen=True)
class CostModel:
    """A model with all that it is asked for.

    Attributes
    ----------
    fit
        The parameters.
    work
        The step that is projected.
    points
        What was fitted, and other parts of a step.
    left
        Points that are predicted.
    unseen
        The collectives of these.
    node
        A full node of the projection.
    left_out
        How many records could not be read, by case.
    """

    fit: MachineFit
    work: StepWork
    points: tuple[Point, ...]
    left: tuple[Point, ...]
    unseen: tuple[Measured, ...]
    node: Node
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def limit(self) -> int:
        """Up to how many ranks a prediction is no extrapolation: 4 times the measured ones."""
        return _EXTRAPOLATED_FROM * self.fit.most_ranks

    @cached_property
    def forms(self) -> dict[str, NormalForm]:
        """The parts without a formula, by the number of ranks."""
        return other_parts(self.points)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The predicted points and the measured steps, beside what was measured."""
        steps = measured_steps([*self.points, *self.left])
        return [*compare(self.fit, self.unseen), *compare_steps(self.fit, steps)]

    @cached_property
    def sentences(self) -> list[str]:
        """What breaks first, and which measurement is missing."""
        return self._statements[0] + _questions(self._served)

    @property
    def never(self) -> list[str]:
        """What does not happen up to the most ranks."""
        return self._statements[1]

    @cached_property
    def _served(self) -> dict[ServedCall, dict[int, float]]:
        return served_calls(self.points)

    @cached_property
    def _statements(self) -> tuple[list[str], list[str]]:
        served, each = self._served, self.node
        more = saturations(served), self.forms, bool(served)
        return statements(self.fit, self.work, each, *more)

    def series(self, ranks: Sequence[int]) -> list[Series]:
        """Project to so many ranks, with parameter servers if they were measured.

        There are none without a network: what a node of more ranks would do is not known.
        """
        if not self.fit.has_network:
            return []
        has_servers = bool(self._served)
        return project(self.fit, self.work, ranks, self.node, has_servers)

    def step_times(self) -> dict[str, dict[int, float]]:
        """Return the times of the projected step by ranks, by the title of their series.

        Steps of other networks or batches are left out, and those of other ranks a node.
        """
        found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for one in measured_steps(self.points):
            is_there = one.layout == layout_of(one.layout.ranks, self.node)
            if is_there and one.is_of(self.work):
                name = step_name(self.work, one.case == "strong")
                title = f"step ({self.work.subject}): {name}"
                found[title][one.layout.ranks].append(one.time_s)
        return {
            title: {ranks: median(times) for ranks, times in by_ranks.items()}
            for title, by_ranks in found.items()
        }


def _questions(calls: dict[ServedCall, dict[int, float]]) -> list[str]:
    """Ask for functions of parameter servers with a second number of workers."""
    return [
        question(call, min(by_workers))
        for call, by_workers in calls.items()
        if len(by_workers) == 1
    ]
