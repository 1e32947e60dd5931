"""Build a model from the points of result files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpistrat.bench.cost_model.fitting.fit import fit_machine
from mpistrat.bench.cost_model.fitting.measurements import collectives_of
from mpistrat.bench.cost_model.model import CostModel
from mpistrat.bench.cost_model.projection.step import step_work
from mpistrat.bench.results.point import Point

__all__ = ["Assumptions", "model_of"]


@dataclass(frozen=True)
class Assumptions:
    """What is assumed besides the measurements.

    Attributes
    ----------
    merge
        What stands for the repeats of a measurement: ``"median"`` or ``"least"``.
    network
        Latency in seconds and bandwidth in bytes a second, for those that were measured.
    ranks_per_node
        Of the projection; default: the most that were measured.
    step_bytes, compute_ms
        Gradients and computation of the projected step; default: of measured steps.
    """

    merge: str = "median"
    network: tuple[float, float] | None = None
    ranks_per_node: int | None = None
    step_bytes: int | None = None
    compute_ms: float | None = None


def model_of(
    points: Sequence[Point], unseen: Sequence[Point] = (), given: Assumptions | None = None
) -> CostModel:
    """Fit a model to points, and predict others that it has not seen. **Local.**

    Raises
    ------
    UsageError
        The points do not suffice; the message says which measurement to add.
    """
    given = given or Assumptions()
    work = step_work(points, given.step_bytes, given.compute_ms)
    fit = fit_machine(collectives_of(points, given.merge))
    if given.network is not None:
        fit = fit.with_network(*given.network)
    predicted = tuple(collectives_of(unseen, given.merge))
    each = given.ranks_per_node or fit.ranks_per_node
    return CostModel(fit, work, tuple(points), tuple(unseen), predicted, each)
