"""`Backward`: the simulated computation of gradients, which keeps one core busy.

It is a number of NumPy calls, calibrated once, and not a wait until some time has passed: where
communication takes the core from it, it takes longer, as real computation does. Nor does it
sleep, which would give a core to the communication that real computation would not give. NumPy
releases the interpreter's lock in the calls, as TensorFlow does. Its 16 KiB stay in the core's
first cache: of the memory's bandwidth, which real computation would need too, it takes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from mpistrat import Communicator
from mpistrat.bench.harness.timing import Plan, measure

__all__ = ["Backward", "call_us"]

_ELEMENTS = 4096
_BLOCK = 100  # calls at a time, as in a step, so that the harness takes none of the time
_PLAN = Plan(rounds=15, repeats=20, warmup=20)  # 6 ms a round

# Repeated cosines tend to 0.739: no overflow, and no subnormal number, which would be slow.
_values = np.ones(_ELEMENTS, np.float32)


def call_us(communicator: Communicator) -> float:
    """Return the time of one call on the slowest rank, while all ranks compute. **Collective.**"""
    timings = measure({"cosine": lambda: _compute(_BLOCK)}, communicator, _PLAN)
    return timings["cosine"].median_us / _BLOCK


class Backward:
    """The computation of each gradient of a step.

    Parameters
    ----------
    sizes
        Of the gradients, in the order in which they are computed; each takes its share of the
        time.
    total_calls
        Calls of NumPy for all of them.
    """

    def __init__(self, sizes: Sequence[int], total_calls: float) -> None:
        # Rounded at the ends of the parts, so that the parts add up.
        ends = np.rint(np.cumsum(sizes) / sum(sizes) * total_calls).astype(int)
        self.calls: list[int] = np.diff(ends, prepend=0).tolist()

    def compute(self, index: int) -> None:
        """Spend the time of the gradient of that index. **Local.**"""
        _compute(self.calls[index])

    def compute_all(self) -> None:
        """Spend the time of all gradients. **Local.**"""
        for index in range(len(self.calls)):
            self.compute(index)


def _compute(count: int) -> None:
    cosine, values = np.cos, _values
    for _ in repeat(None, count):
        cosine(values, out=values)
