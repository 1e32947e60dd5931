"""Bars that the figures have to reach on an H100 or H200, and the check of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Bar", "allreduce_bars", "kernel_bars", "told"]

LARGE_BYTES = 64 << 20
"""From here on a buffer is longer than any cache of these GPUs: figures are of the memory."""

_SMALL_BYTES = 64 << 10
_RESNET50_TENSORS = 161


@dataclass(frozen=True)
class Bar:
    """A figure and its bound.

    Attributes
    ----------
    text
        What is bounded, with unit.
    value
        The figure.
    least, most
        Its bound; one of them is None.
    """

    text: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the figure is within its bound."""
        is_enough = self.least is None or self.value >= self.least
        return is_enough and (self.most is None or self.value <= self.most)

    def record(self) -> dict[str, Any]:
        """Return it for a JSON line."""
        bound = {"least": self.least} if self.most is None else {"most": self.most}
        return {"bar": self.text, "value": round(self.value, 4), **bound, "met": self.is_met}

    def __str__(self) -> str:
        """Return it for the table."""
        bound = f">= {self.least:g}" if self.most is None else f"<= {self.most:g}"
        return f"{self.text} {bound} {'met' if self.is_met else 'MISSED'}"


def told(bars: list[Bar]) -> str:
    """Return bars for one cell of a table."""
    return "; ".join(map(str, bars))


def kernel_bars(
    row: tuple[str, str, int], share: float, speedups: dict[str, float], calls: dict[str, float]
) -> list[Bar]:
    """Return the bars of mpistrat's side of a row.

    Parameters
    ----------
    row
        Its family, what it is of, and its bytes.
    share
        GB/s over those of a copy of as many bytes.
    speedups, calls
        How many times faster it is than each other side, on the GPU and by the host's clock.
    """
    family, what, nbytes = row
    if family in ("reduce", "slice sum") and nbytes >= LARGE_BYTES:
        bars = [Bar("share of copy", share, least=0.9)]
        if family == "reduce" and what == "4 buffers":
            bars.append(Bar("x cupy", speedups["cupy"], least=1.8))
        return bars
    if family in ("pack", "unpack") and what == f"{_RESNET50_TENSORS} arrays":
        loop = Bar("x loop", calls["cupy loop"], least=10)
        return [Bar("share of copy", share, least=0.8), loop]
    return []


def allreduce_bars(nbytes: int, time_us: float, share: float, over_staged: float) -> list[Bar]:
    """Return the bars of what mpistrat chooses for ranks that share one GPU.

    Parameters
    ----------
    nbytes, time_us
        Of the all-reduce.
    share
        Of the bound.
    over_staged
        How many times faster than by the host's memory; 0 if that was not measured.
    """
    if nbytes <= _SMALL_BYTES:
        return [Bar("us", time_us, most=40)]
    if nbytes < LARGE_BYTES:
        return []
    bars = [Bar("share of bound", share, least=0.75)]
    return [*bars, Bar("x staged", over_staged, least=5)] if over_staged else bars
