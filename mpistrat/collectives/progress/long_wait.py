"""A wait of the progress loop that takes long: when it looks at the clock and at the peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpistrat.collectives.progress.work import Awaited

if TYPE_CHECKING:
    from mpistrat.collectives.progress.engine import Engine

__all__ = ["LongWait"]

_LOOK_S = 0.02  # between looks at the clock and at the peers, where works end meanwhile


class LongWait:
    """One wait in which the backend's first sleeps, or a moment of spinning, were not enough.

    Attributes
    ----------
    waited
        Seconds, at the last look.
    """

    def __init__(self, engine: Engine, work: Awaited, limit: float, has_ended: bool) -> None:
        self._engine, self._work, self._limit = engine, work, limit
        self._has_ended = has_ended  # whether a work did in the last pause
        self._looked_at = self.waited = 0.0

    def pause(self, waited: float) -> None:
        """Let time pass, and note whether a work ended meanwhile."""
        self._has_ended = self._engine.pause(self._work, waited)

    def look(self, waited: float) -> None:
        """Look up, but not after each of many short works that end one after the other."""
        self.waited = waited
        is_due = waited - self._looked_at >= _LOOK_S or waited > self._limit
        if is_due or not self._has_ended:
            self._looked_at = waited
            self._engine.look_up(waited, self._limit)
