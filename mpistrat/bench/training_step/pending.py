"""`Pending`: a reduction that was started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mpistrat.types import Array

__all__ = ["Pending"]


class Pending(Protocol):
    """What a carrier returns; mpistrat's `Work` is one."""

    def test(self) -> bool:
        """Advance without waiting; return whether it is over."""
        ...

    def wait(self) -> Sequence[Array]:
        """Wait until it is over, and return its results."""
        ...
