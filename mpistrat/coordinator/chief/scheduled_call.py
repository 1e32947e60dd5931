"""One scheduled function, as the chief keeps it until its result is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpistrat.coordinator.arguments import Arguments
from mpistrat.coordinator.remote_value import RemoteValue
from mpistrat.coordinator.shipping import Function

__all__ = ["Call"]


@dataclass(slots=True, eq=False)
class Call:
    """One function that was scheduled.

    Attributes
    ----------
    arguments
        What it is sent with.
    keep
        What must live on the chief until it has run: variables and datasets in the arguments.
    is_own
        Whether it is for one worker, and nobody else runs it.
    losses
        How many workers have ended with it.
    number
        With which it was sent last; its result comes back under it.
    order
        Its place among those that any worker can run, as they were scheduled.
    place
        Its place in a synchronous round, or -1.
    """

    function: Function
    arguments: Arguments
    value: RemoteValue
    keep: Any
    is_own: bool = False
    losses: int = 0
    number: int = 0
    order: int = 0
    place: int = -1

    def packed_for(self, worker: int) -> bytes:
        """Return the arguments for a worker."""
        packed = self.arguments.packed
        return packed[worker] if isinstance(packed, list) else packed

    @property
    def is_ready(self) -> bool:
        """Whether the results that it needs are there, or will never be."""
        return all(value.is_done for value in self.arguments.needed)
