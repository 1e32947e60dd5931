"""The figures of all ranks: times since the first process of each node began, and holdings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from mpistrat.bench.startup.process import Holdings

__all__ = ["PARTS", "Figures", "Start"]

PARTS = ("spawn", "imports", "mpi", "communicator", "first_call")
"""The parts of a start, in their order."""


@dataclass(frozen=True)
class Start:
    """One rank's start.

    Attributes
    ----------
    node
        Index of its machine.
    began_s
        When its process began.
    at_s
        When each of `PARTS` but the first ended.
    holdings
        What it holds after the first call.
    """

    node: int
    began_s: float
    at_s: tuple[float, ...]
    holdings: Holdings


@dataclass(frozen=True)
class Figures:
    """The starts of all ranks, by rank."""

    starts: tuple[Start, ...]

    @property
    def nodes(self) -> int:
        """On how many machines they are."""
        return len({one.node for one in self.starts})

    def parts_us(self) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return how long each part took, by rank; "spawn" is how late its process began."""
        first = {
            node: min(one.began_s for one in self.starts if one.node == node)
            for node in {one.node for one in self.starts}
        }
        times = np.array([(first[one.node], one.began_s, *one.at_s) for one in self.starts])
        return dict(zip(PARTS, np.diff(times, axis=1).T * 1e6, strict=True))

    def total_us(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the time from the node's first process to the end of the first call, by rank."""
        total: np.ndarray[Any, np.dtype[np.float64]] = np.sum(list(self.parts_us().values()), 0)
        return total

    def held(self, name: str) -> dict[str, int]:
        """Return the median and the most of what ranks hold, by a name of `Holdings`."""
        values = [getattr(one.holdings, name) for one in self.starts]
        return {"median": round(float(np.median(values))), "max": max(values)}

    def on_node(self, name: str) -> int:
        """Return the sum over the ranks of a machine, of the one with most."""
        sums: dict[int, int] = {}
        for one in self.starts:
            sums[one.node] = sums.get(one.node, 0) + getattr(one.holdings, name)
        return max(sums.values())

    def record(self, backend: str, is_right: bool) -> dict[str, Any]:
        """Return the keys of the JSON object."""
        parts = {name: _spread(us) for name, us in self.parts_us().items()}
        return {
            "case": "startup",
            "side": "mpistrat",
            "kind": "backend",
            "backend": backend,
            "ranks": len(self.starts),
            "nodes": self.nodes,
            "time_us": _spread(self.total_us()),
            "parts_us": parts,
            "pss_bytes": self.held("pss_bytes"),
            "shared_bytes": self.on_node("shared_bytes"),
            "own_shared_bytes": self.on_node("own_shared_bytes"),
            **{name: self.held(name) for name in _counts()},
            "correct": is_right,
        }

    def described(self) -> dict[str, str]:
        """Return the lines of the table by name, and the figures in words."""
        parts = {name.replace("_", " "): us for name, us in self.parts_us().items()}
        times = {**parts, "all": self.total_us()}
        pss = self.held("pss_bytes")
        lines = {f"{name}, ms": _in_ms(us) for name, us in times.items()}
        lines["memory of a rank (PSS), MB"] = f"{pss['median'] / 1e6:.1f}, {pss['max'] / 1e6:.1f}"
        for name in _counts():
            lines[f"{name} of a rank"] = "{median}, {max}".format(**self.held(name))
        shared, own = self.on_node("shared_bytes"), self.on_node("own_shared_bytes")
        lines["shared memory of a node, MB"] = f"{shared / 1e6:.1f}, mpistrat's {own / 1e6:.1f}"
        return lines


def _counts() -> Sequence[str]:
    names = [field.name for field in fields(Holdings)]
    return [name for name in names if not name.endswith("bytes")]


def _spread(values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    found = {
        "min": values.min(),
        "median": np.median(values),
        "p99": np.percentile(values, 99),
        "max": values.max(),
    }
    return {name: round(float(value), 1) for name, value in found.items()}


def _in_ms(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    return f"{np.median(values) / 1e3:.0f}, {values.max() / 1e3:.0f}"
