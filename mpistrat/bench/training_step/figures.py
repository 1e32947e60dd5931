"""The figures of a step: what of the communication is exposed, and what it is hidden behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat.bench.harness.bandwidth import busbw_gbps
from mpistrat.bench.harness.timing import Timing
from mpistrat.bench.training_step.sides import StepSide

__all__ = ["Figures", "Traffic", "figures_of"]


@dataclass(frozen=True)
class Traffic:
    """How much a step reduces.

    Attributes
    ----------
    summed_bytes
        Of the dense gradients of a rank.
    gathered_bytes
        Of the rows of all ranks, with their indices.
    ranks
        How many take part.
    """

    summed_bytes: int
    gathered_bytes: int
    ranks: int

    def busbw_gbps(self, time_us: float) -> float:
        """Return the bandwidth if all of it took so long, as nccl-tests count it."""
        summed = busbw_gbps("allreduce", self.ranks, self.summed_bytes, time_us)
        return summed + busbw_gbps("allgather", self.ranks, self.gathered_bytes, time_us)


@dataclass(frozen=True)
class Figures:
    """The figures of one side; times by round, since a disturbance hits all sides of a round.

    Attributes
    ----------
    side
        What was timed.
    timing
        Of a step.
    alone
        Of the computation alone.
    in_sequence
        Of a step of the same library without overlap.
    bases
        Of steps of other libraries, overlapped as this one is, by name.
    """

    side: StepSide
    timing: Timing
    alone: Timing
    in_sequence: Timing
    bases: dict[str, Timing]

    @property
    def exposed(self) -> Timing:
        """What a step takes longer than its computation."""
        return self.timing.minus(self.alone)

    @property
    def overlapped(self) -> float | None:
        """The share of the communication that is hidden; None without overlap."""
        all_of_it = self.in_sequence.minus(self.alone).median_us
        if not self.side.is_overlapped or all_of_it <= 0:
            return None
        return 1 - self.exposed.median_us / all_of_it

    @property
    def efficiency(self) -> float:
        """Computation over the step: 1 if the ranks took no time to communicate."""
        return self.timing.speedup(self.alone)

    def busbw_gbps(self, traffic: Traffic) -> float | None:
        """Return the bandwidth of the communication; None where part of its time is hidden."""
        time_us = self.exposed.median_us
        if self.side.is_overlapped or not self.side.library or time_us <= 0:
            return None
        return traffic.busbw_gbps(time_us)

    def record(self, traffic: Traffic) -> dict[str, Any]:
        """Return the figures for a JSON line."""
        label, speedups = self.side.side.label, {}
        for name, base in self.bases.items():
            speedups[name] = round(self.timing.speedup(base), 4)
        return {
            "side": label.text,
            "kind": label.kind,
            "backend": label.backend,
            "op": label.op,
            "overlap": self.side.is_overlapped,
            "rounds": len(self.timing.rounds_us),
            "rounds_us": [round(one, 3) for one in self.timing.rounds_us],
            "time_us": self.timing.record(),
            "compute_us": self.alone.record(),
            "exposed_us": self.exposed.record(),
            "overlapped": _rounded(self.overlapped),
            "busbw_GBps": _rounded(self.busbw_gbps(traffic)),
            "efficiency": round(self.efficiency, 4),
            "speedup": speedups,
            "correct": True,  # a wrong side is not timed
        }


def figures_of(sides: Sequence[StepSide], timings: Sequence[Timing]) -> list[Figures]:
    """Return the figures of sides, the first of which is computation alone."""
    by_kind = {
        (side.library, side.is_overlapped): timing
        for side, timing in zip(sides, timings, strict=True)
    }
    peers = {side.library for side in sides if side.side.label.is_base}
    found = []
    for side, timing in zip(sides, timings, strict=True):
        others = sorted(peers - {side.library}) if side.library else []
        bases = {name: by_kind[name, side.is_overlapped] for name in others}
        in_sequence = by_kind[side.library, False]
        found.append(Figures(side, timing, timings[0], in_sequence, bases))
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else round(value, 4)
