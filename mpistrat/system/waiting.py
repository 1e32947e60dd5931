"""Wait for a condition: test it, pause, and test again, until it holds or a deadline passes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

__all__ = ["Pause", "backoff", "wait_until"]

Pause: TypeAlias = float | Iterator[float] | Callable[[float], object]
"""What comes between two tests: seconds of sleep, alike or one after the other, or a function that
lets the time pass in its own way, and is told how many seconds the wait has lasted."""


def wait_until(
    test: Callable[[], object],
    timeout_s: float,
    pause: Pause,
    *,
    look: Callable[[float], object] | None = None,
    complain: Callable[[], object] | None = None,
    complain_after_s: float = math.inf,
) -> bool:
    """Wait until `test` returns something true; return whether that was in time. **Local.**

    The caller raises the error of a late wait, since it knows whom it has waited for. Where the
    kernel can wait (a socket, a lock, a condition) that is better than this loop.

    Parameters
    ----------
    test
        The condition; tested once more after the last pause, and so at least once.
    timeout_s
        Seconds until the wait is given up; infinity for never.
    pause
        See `Pause`.
    look
        Called after each test that fails, with the seconds that the wait has lasted: raises if
        the condition can never hold, advances what it depends on.
    complain
        Called once, when the wait has lasted for more than `complain_after_s`.
    """
    let_pass = _as_function(pause)
    start, waited_s = time.monotonic(), 0.0
    while not test():
        # Before the deadline is looked at: that a peer has failed says more than a late wait.
        if look is not None:
            look(waited_s)
        if waited_s > timeout_s:
            return False
        if waited_s > complain_after_s and complain is not None:
            complain_after_s = math.inf
            complain()
        let_pass(waited_s)
        # Read after the pause: a process that was stopped meanwhile tests before it gives up.
        waited_s = time.monotonic() - start
    return True


def backoff(eager: int, first_s: float, factor: float, most_s: float) -> Iterator[float]:
    """Yield pauses for a loop that finds nothing to do: `eager` ones of no time, then longer ones.

    They begin with `first_s`, and each is `factor` times the one before it, up to `most_s`.
    """
    for _ in range(eager):
        yield 0.0
    while True:
        yield first_s
        first_s = min(first_s * factor, most_s)


def _as_function(pause: Pause) -> Callable[[float], object]:
    if callable(pause):
        return pause
    if isinstance(pause, Iterator):
        return lambda _: time.sleep(next(pause))
    return lambda _: time.sleep(pause)
