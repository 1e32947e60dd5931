"""Agree over all ranks on when to save and when to stop, without waiting for each other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mpistrat.collectives import Communicator

__all__ = ["StopAgreement", "Vote"]

_EVERY_S = 0.05  # of shorter steps only some begin a round
_MOST_STEPS = 50
_NEVER = np.iinfo(np.int64).max
_PER_S = 1e3  # times travel as whole milliseconds


class _Round(Protocol):
    """An all-reduce under way."""

    def test(self) -> bool: ...
    def wait(self) -> Any: ...


class _Over:
    """That of a rank which is alone."""

    def test(self) -> bool:
        return True

    def wait(self) -> None:
        pass


@dataclass(frozen=True)
class Vote:
    """What one rank says, or the maximum over all ranks.

    Attributes
    ----------
    stop
        0, or why a rank wants to stop: ``signal << 32 | rank + 1``.
    is_active
        Whether a rank still makes steps.
    is_due
        Whether it is time for a save; while the ranks stop, whether there is, which rank 0 says.
    is_unsaved
        Whether a rank has made steps since the last save.
    deadline
        When the ranks should have ended, in seconds since 1970: the earliest. Infinity for never.
    """

    stop: int
    is_active: bool
    is_due: bool
    is_unsaved: bool
    deadline: float

    @property
    def asks(self) -> bool:
        """Whether there is something to do."""
        return bool(self.stop) or self.is_due

    @property
    def signal(self) -> int:
        """The signal of a rank that wants to stop; 0 if it was none."""
        return self.stop >> 32

    @property
    def rank(self) -> int:
        """The rank that has it."""
        return (self.stop & 0xFFFFFFFF) - 1


class StopAgreement:
    """Rounds in which all ranks learn what any of them says.

    Parameters
    ----------
    communicator
        Of nobody else.
    vote
        Returns what this rank says now. Called when a round begins.

    Notes
    -----
    Ranks make the same calls of :meth:`step` and :meth:`now` in the same order; a rank that has no
    more steps calls :meth:`now` alone. A round is one all-reduce of six words. It begins in the
    call of one step and ends in that of the next, so a rank waits for those only that are a whole
    step behind. Of steps shorter than 50 ms only some begin a round: the ranks agree on how many
    do not, too.
    """

    def __init__(self, communicator: Communicator, vote: Callable[[], Vote]) -> None:
        self._communicator, self._vote = communicator, vote
        self._send, self._result = np.zeros(6, np.int64), np.zeros(6, np.int64)
        self._work: _Round | None = None
        self._calls, self._begins_at, self._between = 0, 1, 1
        self._begun_s, self._begun_at = time.monotonic(), 0

    def step(self) -> Vote | None:
        """End the round that the step before has begun, and begin one; return its result.

        **Collective**, and waits for ranks that have not done the step before. None if no round
        has ended.
        """
        self._calls += 1
        said = None if self._work is None else self._end()
        # All ranks act on what asks for something, and have the next round after that.
        if self._calls >= self._begins_at and not (said and said.asks):
            # One look: where all others are there it is over, and in the way of nothing else.
            self._begin().test()
        return said

    def now(self) -> Vote:
        """Have a round now; return its result, or the round before if that asks for something.

        **Collective**, blocks until all ranks have called this, or a step.
        """
        before = None if self._work is None else self._end()
        # In which others may have ended their part of it by a step, and so act on it now.
        if before is not None and before.asks:
            return before
        self._begin()
        return self._end()

    def _begin(self) -> _Round:
        vote, now_s = self._vote(), time.monotonic()
        steps = self._calls - self._begun_at
        step_s = (now_s - self._begun_s) / steps if steps else 0.0
        self._begun_s, self._begun_at = now_s, self._calls
        deadline = -_NEVER if vote.deadline == math.inf else -int(vote.deadline * _PER_S)
        flags = vote.is_active, vote.is_due, vote.is_unsaved
        self._send[:] = vote.stop, *flags, deadline, int(step_s * 1e6)
        if self._communicator.size == 1:
            self._result[:] = self._send
            self._work = _Over()
        else:
            self._work = self._communicator.iallreduce(self._send, "max", out=self._result)
        return self._work

    def _end(self) -> Vote:
        work, self._work = self._work, None
        if work is not None:
            work.wait()
        stop, is_active, is_due, is_unsaved, deadline, micros = map(int, self._result)
        if micros and self._communicator.size > 1:  # else no rank has made a step, or waits
            # Twice as many as before at most: the first steps may be shorter than the others.
            most = min(_MOST_STEPS, 2 * self._between)
            self._between = max(1, min(most, int(_EVERY_S * 1e6 / micros)))
        self._begins_at = self._begun_at + self._between
        when = math.inf if deadline == -_NEVER else -deadline / _PER_S
        return Vote(stop, bool(is_active), bool(is_due), bool(is_unsaved), when)
