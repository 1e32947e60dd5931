"""Choose the training step that is projected, from result files or options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from mpistrat.bench.cost_model.fitting.run_layout import layout_of_run
from mpistrat.bench.cost_model.formulas.layout import Layout
from mpistrat.bench.cost_model.readable import bytes_text, seconds_text
from mpistrat.bench.results.point import Point

__all__ = ["MeasuredStep", "StepWork", "measured_steps", "step_work"]

_RESNET50_BYTES, _ASSUMED_COMPUTE_S = 102_228_128, 0.1
_ASSUMED_TITLE = "assumed: ResNet-50's gradients, 100 ms"
_CASES = ("weak", "strong", "train", "step")  # in the order in which they are preferred


@dataclass(frozen=True)
class StepWork:
    """A step of data-parallel training.

    Attributes
    ----------
    title
        What it is.
    nbytes
        Gradients of a rank.
    compute_s
        Computation of a rank without communication, at the measured batch of a rank.
    input_s
        Waiting for data.
    hidden
        The share of the communication that computation hides.
    network
        The network that learns; empty if the step is no measured one.
    batch
        Examples of a rank, where they are known.
    source
        The layout that its computation was measured on; empty if it was not.
    """

    title: str
    nbytes: int
    compute_s: float
    input_s: float = 0.0
    hidden: float = 0.0
    network: str = ""
    batch: float | None = None
    source: str = ""

    @property
    def description(self) -> str:
        """What it is, and where it was measured."""
        return f"{self.title}, measured on {self.source}" if self.source else self.title

    @property
    def subject(self) -> str:
        """The title without colons, as part of the name of a series."""
        return self.title.replace(": ", " ")

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
    kept
        What stays as ranks are added: the examples of a rank (``weak``), or of all ranks
        (``strong``, ``train``), or the milliseconds of computation (``step``).
    is_overlapped
        Whether it communicates while it computes.
    """

    case: str
    layout: Layout
    work: StepWork
    time_s: float
    kept: float | None = None
    is_overlapped: bool = False

    def is_of(self, work: StepWork) -> bool:
        """Whether it is a step that is projected from `work`, by weak or strong scaling."""
        mine = self.work.network, self.work.nbytes, self.kept
        has_batch = self.case in {"weak", "strong"} and work.batch is not None
        return has_batch and mine == (work.network, work.nbytes, work.batch)


def step_work(
    points: Sequence[Point], nbytes: int | None = None, compute_ms: float | None = None
) -> StepWork:
    """Return the step that is projected: a measured one, or that of options.

    Of measured ones it is the one that was measured with most numbers of ranks; see `_CASES` for
    the order of cases. Where there is none, it is ResNet-50's gradients and 100 ms, and its title
    says so.
    """
    steps = measured_steps(points)
    if steps:
        work = _work_of(_chosen(steps))
    else:
        work = StepWork(_ASSUMED_TITLE, _RESNET50_BYTES, _ASSUMED_COMPUTE_S)
    if nbytes is None and compute_ms is None:
        return work
    compute_s = work.compute_s if compute_ms is None else compute_ms * 1e-3
    given = replace(work, nbytes=nbytes or work.nbytes, compute_s=compute_s, batch=None, source="")
    size, alone = bytes_text(given.nbytes), seconds_text(given.alone_s)
    return replace(given, title=f"{size} of gradients and {alone} alone, as options say")


def _chosen(steps: Sequence[MeasuredStep]) -> list[MeasuredStep]:
    """Return the measurements of one step, on all numbers of ranks."""
    groups: dict[tuple[object, ...], list[MeasuredStep]] = {}
    for one in steps:
        key = one.case, one.work.network, one.work.nbytes, one.kept
        groups.setdefault(key, []).append(one)
    return min(groups.values(), key=_preference)


def _preference(steps: Sequence[MeasuredStep]) -> tuple[int, int]:
    return _CASES.index(steps[0].case), -len({one.layout.ranks for one in steps})


def _work_of(steps: Sequence[MeasuredStep]) -> StepWork:
    """Return what a step computes on the fewest ranks, and what it hides on the most.

    More ranks slow each other's computation where they share memory and processors. One rank has
    no communication to hide.
    """
    where = min((one.layout for one in steps), key=lambda one: (one.ranks, one.nodes))
    fewest = [one.work for one in steps if one.layout == where]
    most = max(one.layout.ranks for one in steps)
    several = [one for one in steps if one.is_overlapped and one.layout.ranks == most > 1]
    name = fewest[0].network
    if fewest[0].batch is not None:
        name += f", {fewest[0].batch:g} examples a rank"
    if several:
        name += ", overlapped"
    work = replace(
        fewest[0],
        compute_s=median(one.compute_s for one in fewest),
        input_s=median(one.input_s for one in fewest),
        hidden=median(one.work.hidden for one in several) if several else 0.0,
    )
    return replace(work, title=f"{name}; {seconds_text(work.alone_s)} alone", source=str(where))


def measured_steps(points: Sequence[Point]) -> list[MeasuredStep]:
    """Return the steps of this library that points hold."""
    return [
        _read(one, layout_of_run(one, point.placement))
        for point in points
        if point.status == "ok" and point.setup.case in _CASES
        for one in point.records
        if _is_ours(one)
    ]


def _is_ours(one: Mapping[str, Any]) -> bool:
    return one.get("kind") == "backend" and "bytes" in one and one.get("correct") is not False


def _read(one: Mapping[str, Any], layout: Layout) -> MeasuredStep:
    return _simulated(one, layout) if one["case"] == "step" else _trained(one, layout)


def _simulated(one: Mapping[str, Any], layout: Layout) -> MeasuredStep:
    """Read a record of the case ``step``."""
    is_overlapped, scale = bool(one.get("overlap")), one.get("scale", 1)
    network = f"{one['model']}{'' if scale == 1 else f' at scale {scale:g}'}"
    hidden = max(one.get("overlapped") or 0.0, 0.0) if is_overlapped else 0.0
    how = "overlapped" if is_overlapped else "in sequence"
    title = f"measured step of {network}, {how}, {layout}"
    compute_s = one["compute_us"]["median_us"] * 1e-6
    work = StepWork(title, int(one["bytes"]), compute_s, 0.0, hidden, network)
    time_s = one["time_us"]["median_us"] * 1e-6
    return MeasuredStep("step", layout, work, time_s, one.get("compute_ms"), is_overlapped)


def _trained(one: Mapping[str, Any], layout: Layout) -> MeasuredStep:
    """Read a record of a training loop."""
    case, parts = str(one["case"]), one["parts_us"]
    network, batch = str(one.get("network", one.get("family", "?"))), one.get("rank_batch")
    title = f"measured {case} step of {network}, {layout}"
    times = parts["compute"] * 1e-6, parts["input"] * 1e-6
    work = StepWork(title, int(one["bytes"]), *times, 0.0, network, batch)
    kept = batch if case == "weak" else one.get("global_batch")
    return MeasuredStep(case, layout, work, one["time_us"]["median"] * 1e-6, kept)
