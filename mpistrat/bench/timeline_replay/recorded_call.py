"""`RecordedCall`: one call of a timeline, and `Recording`: all calls of one rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Kind", "RecordedCall", "Recording"]


class Kind(NamedTuple):
    """What calls have in common that are made in the same way.

    Attributes
    ----------
    op
        A method of `Communicator`.
    dtype
        The name of what is sent.
    reduction
        A name that `Communicator.allreduce` takes, or None.
    nbytes
        What this rank brought; for broadcasts and scatters the root's.
    """

    op: str
    dtype: str
    reduction: str | None
    nbytes: int


@dataclass(frozen=True)
class RecordedCall:
    """One call.

    Attributes
    ----------
    kind
        What was called.
    start_us
        When, on the clock of the timeline.
    duration_us
        How long it took this rank.
    gap_us
        What had passed since the end of the call before; 0 for the first one.
    """

    kind: Kind
    start_us: float
    duration_us: float
    gap_us: float = 0.0


@dataclass(frozen=True)
class Recording:
    """The calls of one rank in their order.

    Attributes
    ----------
    source
        The name of the file.
    rank, ranks
        Whose calls they are, and of how many ranks the file has any.
    calls
        The calls, of all its communicators.
    left_out
        How many calls are not among them: those that failed or were under way, and those that
        move no data.
    """

    source: str
    rank: int
    ranks: int
    calls: tuple[RecordedCall, ...]
    left_out: int

    @property
    def calls_us(self) -> float:
        """Time in all calls."""
        return sum(call.duration_us for call in self.calls)

    @property
    def gaps_us(self) -> float:
        """Time between calls."""
        return sum(call.gap_us for call in self.calls)
