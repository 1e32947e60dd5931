"""Measure one row: check the answers of all sides, then time them in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mpistrat.bench.harness.bandwidth import algbw_gbps, busbw_gbps
from mpistrat.bench.harness.calibration import Budget, measure_within
from mpistrat.bench.harness.expected_results import Task
from mpistrat.bench.harness.problem import Problem
from mpistrat.bench.harness.session import Session
from mpistrat.bench.harness.sides import Label, Side
from mpistrat.bench.harness.timing import Timing

__all__ = ["Heading", "Row", "run_row"]


@dataclass(frozen=True)
class Heading:
    """The task of a row, and the memory of its buffers.

    Attributes
    ----------
    case
        The benchmark.
    task
        What is done.
    is_registered, is_shared
        Whose memory the buffers are; see `Memory`.
    """

    case: str
    task: Task
    is_registered: bool = False
    is_shared: bool = False


@dataclass(frozen=True)
class Row:
    """The figures of one task, for all sides.

    Attributes
    ----------
    heading
        What was done.
    nodes
        Machines of the job.
    labels, timings, correct
        For each side: its label, its times, and whether the answers of all ranks were right.
    """

    heading: Heading
    nodes: int
    labels: Sequence[Label]
    timings: Sequence[Timing]
    correct: Sequence[bool]

    @property
    def task(self) -> Task:
        """The task of this rank."""
        return self.heading.task

    @property
    def wrong(self) -> list[str]:
        """A message for each side whose answer was wrong."""
        return [
            f"{label.text}: {label.op} of {self.task.nbytes} bytes of {self.task.dtype} is wrong"
            for label, is_right in zip(self.labels, self.correct, strict=True)
            if not is_right
        ]

    def speedups(self, index: int) -> dict[str, float]:
        """Return how many times faster side `index` is than each base, by the base's label."""
        mine = self.timings[index]
        pairs = zip(self.labels, self.timings, strict=True)
        return {
            label.text: mine.speedup(timing)
            for other, (label, timing) in enumerate(pairs)
            if label.is_base and other != index
        }

    def bandwidths(self, index: int) -> tuple[float, float]:
        """Return algbw and busbw of side `index` in GB/s, of its median."""
        nbytes, time_us = self.task.nbytes, self.timings[index].median_us
        algbw = algbw_gbps(nbytes, time_us)
        if self.labels[index].kind == "bound":  # it moves nothing between ranks
            return algbw, algbw
        return algbw, busbw_gbps(self.labels[index].op, self.task.size, nbytes, time_us)

    def records(self) -> list[dict[str, Any]]:
        """Return a record for each side, for the JSON lines."""
        task, heading = self.task, self.heading
        shared = {
            "dtype": str(task.dtype),
            "ranks": task.size,
            "nodes": self.nodes,
            "bytes": task.nbytes,
            "in_place": task.in_place,
            "registered": heading.is_registered,
            "shared": heading.is_shared,
            "reduction": task.reduction if task.is_reduction else None,
        }
        return [
            {"case": heading.case, **_own(self, index), **shared, **_figures(self, index)}
            for index in range(len(self.labels))
        ]


def run_row(
    heading: Heading,
    sides: Sequence[Side],
    problems: Sequence[Problem],
    session: Session,
    budget: Budget,
) -> Row:
    """Check and time the sides of a row, which solve `problems`. **Collective.**"""
    # Checked before anything is timed, by all ranks: each looks at its own answer.
    correct = [session.agree(side.is_right()) for side in sides]
    for problem in problems:
        # Between checking and timing, since checking fills the buffers anew.
        problem.settle()
    calls = [side.call for side in sides]
    timings = measure_within(calls, session.communicator, budget)
    nodes = session.communicator.topology.num_nodes
    return Row(heading, nodes, [side.label for side in sides], timings, correct)


def _own(row: Row, index: int) -> dict[str, Any]:
    label = row.labels[index]
    return {"side": label.text, "kind": label.kind, "backend": label.backend, "op": label.op}


def _figures(row: Row, index: int) -> dict[str, Any]:
    timing = row.timings[index]
    statistics = ("min", "median", "p99", "max")
    algbw, busbw = row.bandwidths(index)
    return {
        "time_us": {name: round(getattr(timing, f"{name}_us"), 3) for name in statistics},
        "rounds": len(timing.rounds_us),
        "rounds_us": [round(one, 3) for one in timing.rounds_us],
        "algbw_GBps": round(algbw, 6),
        "busbw_GBps": round(busbw, 6),
        "speedup": {base: round(value, 4) for base, value in row.speedups(index).items()},
        "correct": row.correct[index],
    }
