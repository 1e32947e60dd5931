"""`TimedAllReduce`: the time that a program spends in the strategy's all-reduces."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import mpistrat

__all__ = ["TimedAllReduce"]


class TimedAllReduce(mpistrat.HierarchicalCopyAllReduce):
    """The usual all-reduce with a clock around it, for a strategy's `cross_device_ops`.

    Attributes
    ----------
    seconds
        Time in all-reduces on this rank so far: packing, the transfer, and the wait for ranks
        that come later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def batch_reduce_implementation(
        self,
        reduce_op: mpistrat.ReduceOp,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: Any,
    ) -> list[mpistrat.Mirrored]:
        """Combine several values at once, and add the time that it took."""
        start = time.perf_counter()
        try:
            return super().batch_reduce_implementation(reduce_op, value_destination_pairs, options)
        finally:
            self.seconds += time.perf_counter() - start
