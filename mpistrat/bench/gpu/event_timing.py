"""Time what a GPU does, apart from how fast the host can queue it.

Calls that are queued one by one reach a GPU no faster than Python makes them, 5 to 50 µs each. So
a kernel holds the stream until all calls of a turn are queued; then the GPU does them back to
back, between two events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from mpistrat.bench.gpu.comparison import Side
from mpistrat.bench.harness.calibration import Budget, calibrate
from mpistrat.bench.harness.timing import Timing

__all__ = ["EventTimer", "measure_sides"]

# Of pinned memory over the bus, about 1 µs each on a GPU: a hold ends by itself after that, so
# a call that waits for the device cannot hang.
_MOST_POLLS = 50_000
_MOST_LAUNCHES = 400  # a stream takes about 1000 before the host has to wait

_HOLD = r"""
extern "C" __global__ void hold(volatile int* flags, int most) {
  for (int i = 0; i < most && flags[0] == 0; ++i) {}
  flags[1] = flags[0];
}
"""


class EventTimer:
    """Times calls on the current stream of the current GPU.

    Attributes
    ----------
    held
        Whether the stream was held long enough in all turns so far. If it was not, the host's
        time is in the figures.
    """

    def __init__(self) -> None:
        import cupy

        self._kernel = cupy.RawModule(code=_HOLD).get_function("hold")
        self._memory = cupy.cuda.alloc_pinned_memory(8)
        self._flags = np.frombuffer(self._memory, np.int32, 2)
        self._events = cupy.cuda.Event(), cupy.cuda.Event()
        self.held = True

    def device_s(self, function: Callable[[], object], count: int) -> float:
        """Return the seconds that the GPU takes for `count` calls."""
        import cupy

        start, stop = self._events
        self._flags[:] = 0
        self._kernel((1,), (1,), (np.uint64(self._memory.ptr), np.int32(_MOST_POLLS)))
        try:
            start.record()
            for _ in range(count):
                function()
            stop.record()
        finally:
            self._flags[0] = 1
        stop.synchronize()
        self.held &= bool(self._flags[1] == 1)
        return float(cupy.cuda.get_elapsed_time(start, stop)) / 1e3

    @staticmethod
    def call_s(function: Callable[[], object], count: int) -> float:
        """Return the seconds of `count` calls by the host's clock, until the GPU has done them."""
        import cupy

        stream = cupy.cuda.get_current_stream()
        stream.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            function()
        stream.synchronize()
        return time.perf_counter() - begin


def measure_sides(
    sides: Sequence[Side], budget: Budget
) -> tuple[list[Timing], list[Timing], list[bool]]:
    """Time sides in turn, after a turn each that is not counted. **Local.**

    Returns
    -------
    tuple
        For each side: the times of a call on the GPU, its times on the host, and whether the
        first are the GPU's alone.
    """
    timers = [EventTimer() for _ in sides]
    calls_s = [_warm_s(timer, side) for timer, side in zip(timers, sides, strict=True)]
    # Half of the time for each of the two clocks.
    rounds, wanted = calibrate(calls_s, Budget(budget.rounds, budget.seconds / 2))
    counts = [
        max(1, min(count, _MOST_LAUNCHES // side.launches))
        for count, side in zip(wanted, sides, strict=True)
    ]
    for timer, side, count in zip(timers, sides, counts, strict=True):
        timer.device_s(side.call, count)  # fills the pools of memory that a held stream uses
        timer.held = True
    turns = list(zip(timers, sides, counts, np.zeros((len(sides), 2, rounds)), strict=True))
    for round_ in range(rounds):
        for timer, side, count, times in turns if round_ % 2 == 0 else reversed(turns):
            times[0, round_] = timer.device_s(side.call, count) / count * 1e6
            times[1, round_] = timer.call_s(side.call, count) / count * 1e6
    on_device = [Timing(tuple(times[0].tolist())) for *_, times in turns]
    on_host = [Timing(tuple(times[1].tolist())) for *_, times in turns]
    return on_device, on_host, [timer.held for timer in timers]


def _warm_s(timer: EventTimer, side: Side) -> float:
    """Return the seconds of a call that is warm, by the slower one of the clocks."""
    side.call()
    return max(timer.device_s(side.call, 1), timer.call_s(side.call, 1), 1e-7)
