"""Measure the kernels' rows: check all answers, then time all sides in turn against a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mpistrat.bench.gpu.bars import Bar, kernel_bars
from mpistrat.bench.gpu.comparison import Comparison, Planned, Plans, Side, copy_side
from mpistrat.bench.gpu.event_timing import measure_sides
from mpistrat.bench.harness.calibration import Budget
from mpistrat.bench.harness.timing import Timing

__all__ = ["KernelRow", "measure_kernels"]

_SHARE_OF_MEMORY = 0.8


@dataclass(frozen=True)
class KernelRow:
    """The figures of one row.

    Attributes
    ----------
    family, what, dtype, nbytes, moved
        As of `Comparison`.
    sides
        Those that were measured: mpistrat's first, the copy last.
    on_device, on_host
        The times of a call by events on the stream, and by the host's clock.
    held
        Whether the first ones are without the host's time.
    left_out
        Why sides are not there, by name.
    wrong
        Sides whose answer was wrong.
    """

    family: str
    what: str
    dtype: str
    nbytes: int
    moved: int
    sides: list[Side]
    on_device: list[Timing]
    on_host: list[Timing]
    held: list[bool]
    left_out: dict[str, str]
    wrong: list[str]

    def gbps(self, index: int) -> float:
        """Return the bytes that have to be moved over a side's median time, in 10⁹ a second."""
        return self.moved / max(self.on_device[index].median_us, 1e-6) / 1e3

    def share(self, index: int) -> float:
        """Return how fast a side is compared with the copy of as many bytes: 1 is as fast."""
        return self.on_device[index].speedup(self.on_device[-1])

    def speedups(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return how many times faster mpistrat is than the others: on the GPU, by the host."""
        both = [
            {
                side.name: times[0].speedup(theirs)
                for side, theirs in list(zip(self.sides, times, strict=True))[1:]
            }
            for times in (self.on_device, self.on_host)
        ]
        return both[0], both[1]

    def bars(self) -> list[Bar]:
        """Return the bars of mpistrat's side."""
        row = (self.family, self.what, self.nbytes)
        return kernel_bars(row, self.share(0), *self.speedups())

    def records(self, *, has_bars: bool) -> list[dict[str, Any]]:
        """Return a record for each side, for the JSON lines."""
        device, calls = self.speedups()
        shared = {
            "case": "gpu",
            "part": "kernels",
            "op": self.family,
            "what": self.what,
            "dtype": self.dtype,
            "ranks": 1,
            "bytes": self.nbytes,
            "moved_bytes": self.moved,
            "left_out": self.left_out,
        }
        return [
            {
                **shared,
                "side": side.name,
                "kind": side.kind,
                "time_us": self.on_device[index].record(),
                "call_us": self.on_host[index].record(),
                "held": self.held[index],
                "GBps": round(self.gbps(index), 3),
                "share_of_copy": round(self.share(index), 4),
                "speedup_over": {n: round(v, 4) for n, v in device.items()} if not index else {},
                "call_speedup_over": (
                    {n: round(v, 4) for n, v in calls.items()} if not index else {}
                ),
                "bars": [bar.record() for bar in self.bars()] if has_bars and not index else [],
                "correct": side.name not in self.wrong,
            }
            for index, side in enumerate(self.sides)
        ]


def measure_kernels(
    plans: Plans, budget: Budget, say: Callable[[str], None]
) -> Iterator[KernelRow]:
    """Yield the figures of each planned row; `say` which do not fit in the memory. **Local.**"""
    import cupy

    for plan in plans:
        cupy.get_default_memory_pool().free_all_blocks()
        free = cupy.cuda.runtime.memGetInfo()[0]
        if plan.needed > free * _SHARE_OF_MEMORY:
            say(_too_long(plan, free))
            continue
        yield _measure(plan.make(), budget)


def _too_long(plan: Planned, free: int) -> str:
    return (
        f"{plan.family}, {plan.what}, {plan.nbytes} bytes: left out, it takes {plan.needed} bytes"
        f" of the GPU's memory, of which {free} are free"
    )


def _measure(one: Comparison, budget: Budget) -> KernelRow:
    left_out: dict[str, str] = {}
    wrong, sides = [], []
    for side in one.sides:
        try:
            is_right = _is_right(one, side)
        except Exception as error:
            if side.kind == "mpistrat":
                raise
            # Another library's call, of a version that nobody has tried: told, not measured.
            left_out[side.name] = f"{type(error).__name__}: {error}"
            continue
        sides.append(side)
        if not is_right:
            wrong.append(side.name)
    sides.append(copy_side(one.moved))
    figures = measure_sides(sides, budget)
    row = (one.family, one.what, one.dtype, one.nbytes, one.moved)
    return KernelRow(*row, sides, *figures, left_out, wrong)


def _is_right(one: Comparison, side: Side) -> bool:
    one.reset()
    return one.is_right(side.call())
