"""Steps that advance beside each other: the wire is busy while memory is copied."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mpistrat.collectives.base import Request, Steps

__all__ = ["Pipeline", "Stage"]

T = TypeVar("T")

_LEAST_NAP_S, _MOST_NAP_S = 10e-6, 500e-6
_NAP_SHARE = 1 / 2  # a nap is at most this share of what was waited for already


class Stage:
    """Steps as one request.

    Attributes
    ----------
    request
        What the steps wait for; None before they begin and once they are over.
    result
        What they returned.
    taken
        How many steps were begun.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.request: Request | None = None
        self.is_over = False
        self.result: Any = None
        self.taken = 0

    def Test(self) -> bool:  # noqa: N802 - see Request
        """Go as far as is possible without waiting; return whether the steps are over."""
        try:
            while not self.is_over and (self.request is None or self.request.Test()):
                self.request = next(self._steps)
                self.taken += 1
        except StopIteration as stop:
            self.request, self.result = None, stop.value
            self.is_over = True
        return self.is_over

    def sleep(self, seconds: float) -> bool:
        """Let time pass while nothing can be done; see `Request`."""
        return _nap(self, seconds, [self])


@dataclass(frozen=True)
class Pipeline(Generic[T]):
    """Puts each of many parts through three stages, several parts at the same time.

    Attributes
    ----------
    load, store
        Steps between the ranks of a node. They run one at a time, and in the same order on all
        ranks, however fast the wire is: load 0 to depth - 1, store 0, load depth, store 1, ...
    carry
        Steps over the wire, given the number of the part and what `load` returned; `store` gets
        what it returns.
    test_some
        Tests requests of `carry`, and returns the indices of those that are complete; one call
        costs much less than the requests' own tests.
    depth
        How many parts are carried at a time.
    """

    load: Callable[[T], Steps]
    carry: Callable[[int, T, Any], Steps]
    store: Callable[[T, Any], Steps]
    test_some: Callable[[Sequence[Request]], Sequence[int]]
    depth: int

    def run(self, parts: Sequence[T]) -> Steps:
        """Put `parts` through."""
        flying: deque[Stage] = deque()
        for number in range(len(parts) + self.depth):
            if number >= self.depth and flying:
                if not flying[0].is_over:
                    yield _Beside(None, flying, self.test_some)
                result = flying.popleft().result
                yield from self._beside(self.store(parts[number - self.depth], result), flying)
            if number < len(parts):
                loaded = yield from self._beside(self.load(parts[number]), flying)
                flying.append(Stage(self.carry(number, parts[number], loaded)))
                flying[-1].Test()

    def _beside(self, steps: Steps, flying: deque[Stage]) -> Steps:
        """Take `steps` while the `flying` stages advance; return their result."""
        while True:
            try:
                request = next(steps)
            except StopIteration as stop:
                return stop.value
            yield _Beside(request, flying, self.test_some)


@dataclass(frozen=True)
class _Beside:
    """A request (None: the first stage's end) during which stages advance."""

    request: Request | None
    stages: deque[Stage]
    test_some: Callable[[Sequence[Request]], Sequence[int]]

    def Test(self) -> bool:  # noqa: N802 - see Request
        waiting = [stage for stage in self.stages if stage.request is not None]
        if waiting:
            for index in self.test_some([stage.request for stage in waiting]):  # type: ignore[misc]
                waiting[index].Test()
        return self.stages[0].is_over if self.request is None else self.request.Test()

    def sleep(self, seconds: float) -> bool:
        """Let time pass while nothing can be done; see `Request`."""
        sleep = getattr(self.request, "sleep", None)
        if sleep is not None and not self.stages:
            return bool(sleep(seconds))
        return _nap(self, seconds, self.stages)


def _nap(request: Request, seconds: float, stages: Collection[Stage]) -> bool:
    """Test `request` for up to `seconds`, the more seldom the longer no stage has advanced.

    A test makes MPI look at every connection: without pauses the ranks of a node take each
    other's processors, and with long ones a fast wire would run dry.
    """
    start = moved = time.monotonic()
    taken = -1
    while not request.Test():
        now, count = time.monotonic(), sum(stage.taken for stage in stages)
        if now - start > seconds:
            return False
        if count != taken:
            moved, taken = now, count
        pause = min((now - moved) * _NAP_SHARE, _MOST_NAP_S)
        if pause < _LEAST_NAP_S:
            os.sched_yield()
        else:
            time.sleep(pause)
    return True
