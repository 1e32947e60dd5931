"""Build a model from the points of result files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpistrat.bench.cost_model.fitting.fit import fit_machine
from mpistrat.bench.cost_model.fitting.measurements import collectives_of
from mpistrat.bench.cost_model.model import CostModel
from mpistrat.bench.cost_model.projection.step import step_work
from mpistrat.bench.cost_model.projection.thresholds import MOST_RANKS
from mpistrat.bench.cost_model.readable_records import left_out_text, readable_points
from mpistrat.bench.results.point import Point
from mpistrat.errors import UsageError

__all__ = ["Assumptions", "model_of"]

_MOST_A_NODE = MOST_RANKS // 2


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
        The points do not suffice, and the message says which measurement to add; or the projected
        nodes have too many ranks.
    """
    given = given or Assumptions()
    if given.ranks_per_node is not None and given.ranks_per_node > _MOST_A_NODE:
        raise UsageError(
            f"--ranks-per-node {given.ranks_per_node}: expected {_MOST_A_NODE:,} at most, so that"
            f" {MOST_RANKS:,} ranks are on several nodes"
        )
    points, left_out = readable_points(points)
    unseen, left_out_unseen = readable_points(unseen)
    left_out += left_out_unseen
    work = step_work(points, given.step_bytes, given.compute_ms)
    try:
        fit = fit_machine(collectives_of(points, given.merge))
    except UsageError as error:
        raise UsageError(f"{error} {left_out_text(left_out)}".rstrip()) from error
    if given.network is not None:
        fit = fit.with_network(*given.network)
    predicted = tuple(collectives_of(unseen, given.merge))
    node = fit.node if given.ranks_per_node is None else fit.node_of(given.ranks_per_node)
    return CostModel(fit, work, tuple(points), tuple(unseen), predicted, node, left_out)
