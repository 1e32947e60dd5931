"""The abstract base of the communicator's methods: how they start a call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.progress.work import Work

__all__ = ["CallStarter"]


class CallStarter(ABC):
    """A base of classes with collectives as methods."""

    @abstractmethod
    def _start(self, make: Callable[..., Steps], *arguments: Any) -> Work[Any]:
        """Check the arguments by calling `make`, and start the steps that it returns."""

    @abstractmethod
    def _call(self, timeout: float | None, make: Callable[..., Steps], *arguments: Any) -> Any:
        """Do the same, and wait until the call is over; return its result."""

    @abstractmethod
    def _start_behind(self, make: Callable[..., Steps], *arguments: Any) -> Work[Any]:
        """Start them, and let the call go on while Python computes, where the backend can."""
