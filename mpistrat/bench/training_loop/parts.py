"""Where the time of steps goes: input, computation, communication and waiting; by rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat import Communicator
from mpistrat.types import Array

__all__ = ["Box", "Steps", "over_ranks"]

_INPUT, _COMPUTE, _COLLECTIVE = range(3)


@dataclass(frozen=True)
class Box:
    """Five numbers that tell how values are spread.

    Attributes
    ----------
    least, q1, median, q3, most
        The least value, quartiles and the largest one.
    """

    least: float
    q1: float
    median: float
    q3: float
    most: float

    @classmethod
    def of(cls, values: Array) -> Box:
        """Return the box of some values."""
        return cls(*np.percentile(values, (0, 25, 50, 75, 100)).tolist())

    def record(self) -> dict[str, float]:
        """Return it for a JSON line."""
        values = (self.least, self.q1, self.median, self.q3, self.most)
        names = ("min", "q1", "median", "q3", "max")
        return {name: round(value, 3) for name, value in zip(names, values, strict=True)}


@dataclass(frozen=True)
class Steps:
    """The timed steps of all rounds, over all ranks; times in microseconds.

    Attributes
    ----------
    slowest
        (rounds, steps): the time of each step on its slowest rank.
    mean_parts
        (rounds, steps, 3): input, computation and time in collectives, the means over ranks.
    least_collective
        (rounds, steps): the least time in collectives of any rank.
    boxes
        Of each rank: its own time in a step, outside of collectives.
    """

    slowest: Array
    mean_parts: Array
    least_collective: Array
    boxes: Sequence[Box]

    @property
    def median_us(self) -> float:
        """Median time of a step."""
        return float(np.median(self.slowest))

    @property
    def medians_us(self) -> list[float]:
        """Median time of a step in each round."""
        return [round(float(one), 3) for one in np.median(self.slowest, axis=1)]

    def times(self) -> dict[str, float]:
        """Return the spread of a step's time, for a JSON line."""
        least, median, p99, most = np.percentile(self.slowest, (0, 50, 99, 100)).tolist()
        times = {"min": least, "median": median, "p99": p99, "max": most}
        return {name: round(value, 3) for name, value in times.items()}

    def parts(self) -> dict[str, float]:
        """Return what a rank does in a step: the medians over steps of the means over ranks.

        A rank that comes late to a collective waits for nobody there, so the least time of any
        rank is that of the transfer, and what others are longer in it they wait.
        """
        waiting = self.mean_parts[..., _COLLECTIVE] - self.least_collective
        of_steps = {
            "input": self.mean_parts[..., _INPUT],
            "compute": self.mean_parts[..., _COMPUTE],
            "communication": self.least_collective,
            "idle": waiting,
        }
        return {name: round(float(np.median(one)), 3) for name, one in of_steps.items()}

    def by_rank(self, hosts: Sequence[str]) -> list[dict[str, Any]]:
        """Return each rank's box, for a JSON line; `hosts` has the machine of each rank."""
        pairs = zip(hosts, self.boxes, strict=True)
        return [
            {"rank": rank, "host": host, **box.record()} for rank, (host, box) in enumerate(pairs)
        ]


def over_ranks(parts_us: Array, communicator: Communicator) -> Steps:
    """Combine the ranks' times of the same steps. **Collective.**

    Parameters
    ----------
    parts_us
        (rounds, steps, 3): this rank's times for input, computation and collectives.
    communicator
        Of the ranks.

    Returns
    -------
    Steps
        The same on all ranks. Five numbers a rank are gathered; all else is reduced.
    """
    collective = parts_us[..., _COLLECTIVE]
    own = parts_us.sum(axis=-1) - collective
    box = Box.of(own)
    row = np.array([[box.least, box.q1, box.median, box.q3, box.most]])
    return Steps(
        communicator.allreduce(parts_us.sum(axis=-1), "max"),
        communicator.allreduce(parts_us, "mean"),
        communicator.allreduce(collective, "min"),
        [Box(*one) for one in communicator.allgather(row).tolist()],
    )
