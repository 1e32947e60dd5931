"""Split a step into computation, exposed and hidden communication, by merged times."""

from __future__ import annotations

from collections.abc import Sequence

from mpistrat.bench.report.analysis.measurements import Measurement

__all__ = ["computed_us", "efficiency", "exposed_us", "hidden"]


def computed_us(m: Measurement) -> float:
    """Return the computation of a step; all of a step that only computes."""
    if m.get("kind") == "bound":
        return m.time.median
    figures = m.get("compute_us")
    return float(figures.get("median_us", figures.get("median", 0.0)))


def exposed_us(m: Measurement) -> float:
    """Return what a step takes longer than its computation."""
    return max(0.0, m.time.median - computed_us(m))


def efficiency(m: Measurement) -> float:
    """Return the computation over the step: 1 if the ranks took no time to communicate."""
    return min(1.0, computed_us(m) / m.time.median)


def hidden(m: Measurement, sides: Sequence[Measurement]) -> float | None:
    """Return the share of the communication that is hidden behind computation, 0 to 1.

    It is over the step of the same library without overlap; None without overlap, or if that step
    has no communication.
    """
    if not m.get("overlap"):
        return None
    name = _library(m)
    base = next((one for one in sides if not one.get("overlap") and _library(one) == name), None)
    if base is None:
        told = m.get("overlapped")
        return None if told is None else min(1.0, max(0.0, float(told)))
    whole = exposed_us(base)
    return max(0.0, 1 - exposed_us(m) / whole) if whole > 0 else None


def _library(m: Measurement) -> str:
    return m.side.rpartition(", ")[0] or m.side
