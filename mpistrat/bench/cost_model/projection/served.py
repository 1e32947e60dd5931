"""Parameter servers: at how many workers they are busy all the time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from mpistrat.bench.cost_model.fitting.least_squares import non_negative
from mpistrat.bench.results.point import Point

__all__ = ["Saturation", "ServedCall", "question", "saturations", "served_calls"]

_DEFAULT_SERVERS = 2  # of bench ps


@dataclass(frozen=True)
class ServedCall:
    """A kind of function that workers run: which call, and how many servers."""

    kind: str
    name: str
    servers: int

    def __str__(self) -> str:
        """Say it in a statement."""
        if self.kind == "schedule":
            return f"the chief, which schedules {self.name}s"
        servers = f"{self.servers} server{'s' if self.servers > 1 else ''}"
        return f"{self.name} ({self.kind}) of {servers}"


@dataclass(frozen=True)
class Saturation:
    """How functions scale: one takes `served_s + own_s / workers`.

    Attributes
    ----------
    served_s
        What the servers do one after the other.
    own_s
        What workers do at the same time.
    most
        The most workers that were measured.
    """

    served_s: float
    own_s: float
    most: int

    @property
    def workers(self) -> float:
        """Where adding workers gains nothing: N* = (served + own) / served.

        The knee of the asymptotic bounds of a closed queueing network (Denning and Buzen: The
        operational analysis of queueing network models. 1978, doi 10.1145/356733.356735).
        """
        return float("inf") if self.served_s == 0 else 1 + self.own_s / self.served_s


def served_calls(points: Sequence[Point]) -> dict[ServedCall, dict[int, float]]:
    """Return the seconds of a function by workers, of each kind that points hold."""
    found: dict[ServedCall, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        if point.status != "ok" or point.setup.case != "ps":
            continue
        chosen = point.setup.options.get("num-ps", _DEFAULT_SERVERS)
        for one in point.records:
            servers = int(one.get("num_ps", chosen))
            workers = int(one["ranks"]) - 1 - servers
            if workers >= 1 and "mpistrat" in one.get("times", {}):
                key = ServedCall(str(one["kind"]), str(one["name"]), servers)
                found[key][workers].append(one["times"]["mpistrat"]["median_us"] * 1e-6)
    return {key: {w: median(t) for w, t in times.items()} for key, times in found.items()}


def saturations(calls: dict[ServedCall, dict[int, float]]) -> dict[ServedCall, Saturation]:
    """Return those of calls that were measured with two numbers of workers or more."""
    return {key: _fitted(times) for key, times in calls.items() if len(times) > 1}


def question(call: ServedCall, workers: int) -> str:
    """Return the sentence that asks for another measurement of a call."""
    return (
        f"{call}: measured with {workers} workers only; measure another number, too: mpirun -n"
        f" {2 * workers + call.servers + 1} mpistrat bench ps --what {call.kind} --num-ps"
        f" {call.servers} --json more.jsonl"
    )


def _fitted(times: dict[int, float]) -> Saturation:
    seconds = np.array(list(times.values()))
    terms = np.array([[1.0, 1 / workers] for workers in times]) / seconds[:, None]
    served, own = non_negative(terms, np.ones(len(seconds)))
    return Saturation(float(served), float(own), max(times))
