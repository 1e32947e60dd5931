"""What a training step computes and reduces, as result files or options say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mpistrat.bench.cost_model.formulas.layout import Layout
from mpistrat.bench.results.point import Point

__all__ = ["MeasuredStep", "StepWork", "measured_steps", "step_work"]

_RESNET50_BYTES, _ASSUMED_COMPUTE_S = 102_228_128, 0.1
_CASES = ("weak", "strong", "train", "step")  # in the order in which they are preferred


@dataclass(frozen=True)
class StepWork:
    """A step of data-parallel training.

    Attributes
    ----------
    title
        What it is, and where it is from.
    nbytes
        Gradients of a rank.
    compute_s
        Computation of a rank without communication, at the measured batch of a rank.
    input_s
        Waiting for data.
    hidden
        The share of the communication that computation hides.
    """

    title: str
    nbytes: int
    compute_s: float
    input_s: float = 0.0
    hidden: float = 0.0

    @property
    def alone_s(self) -> float:
        """The step of one rank, which communicates with none."""
        return self.compute_s + self.input_s


@dataclass(frozen=True)
class MeasuredStep:
    """The time of a step.

    Attributes
    ----------
    case
        ``weak``, ``strong``, ``train`` or ``step``.
    layout
        Of the ranks.
    work
        What it computed and reduced.
    time_s
        Its median.
    """

    case: str
    layout: Layout
    work: StepWork
    time_s: float


def step_work(
    points: Sequence[Point], nbytes: int | None = None, compute_ms: float | None = None
) -> StepWork:
    """Return the step that is projected: the measured one of most ranks, or one of options.

    Of steps in sequence and overlapped the latter. Where there is neither, it is ResNet-50's
    gradients and 100 ms, and its title says so.
    """
    steps = measured_steps(points)
    if steps:
        work = min(steps, key=_preference).work
    else:
        title = "assumed: the gradients of ResNet-50 and 100 ms of computation"
        work = StepWork(title, _RESNET50_BYTES, _ASSUMED_COMPUTE_S)
    if nbytes is None and compute_ms is None:
        return work
    return replace(
        work,
        title="given by options",
        nbytes=work.nbytes if nbytes is None else nbytes,
        compute_s=work.compute_s if compute_ms is None else compute_ms * 1e-3,
    )


def _preference(one: MeasuredStep) -> tuple[int, int, float]:
    return _CASES.index(one.case), -one.layout.ranks, -one.work.hidden


def measured_steps(points: Sequence[Point]) -> list[MeasuredStep]:
    """Return the steps of this library that points hold."""
    records = [
        one
        for point in points
        if point.status == "ok" and point.setup.case in _CASES
        for one in point.records
    ]
    return [_read(one) for one in records if _is_ours(one)]


def _is_ours(one: Mapping[str, Any]) -> bool:
    return one.get("kind") == "backend" and "bytes" in one and one.get("correct") is not False


def _read(one: Mapping[str, Any]) -> MeasuredStep:
    layout = Layout(int(one["ranks"]), int(one["nodes"]))
    case, nbytes = str(one["case"]), int(one["bytes"])
    if case == "step":
        hidden = max(one.get("overlapped") or 0.0, 0.0) if one.get("overlap") else 0.0
        how = "overlapped" if one.get("overlap") else "in sequence"
        title = f"measured step of {one['model']}, {how}, {layout}"
        work = StepWork(title, nbytes, one["compute_us"]["median_us"] * 1e-6, 0.0, hidden)
        return MeasuredStep(case, layout, work, one["time_us"]["median_us"] * 1e-6)
    parts = one["parts_us"]
    title = f"measured {case} step of {one.get('network', one.get('family', '?'))}, {layout}"
    work = StepWork(title, nbytes, parts["compute"] * 1e-6, parts["input"] * 1e-6)
    return MeasuredStep(case, layout, work, one["time_us"]["median"] * 1e-6)
