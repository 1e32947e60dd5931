"""The abstract base of the communicator's methods: how they start a call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from mpistrat.collectives.backends.base import Steps
from mpistrat.collectives.work import Work

__all__ = ["Starts"]


class Starts(ABC):
    """A base of classes with collectives as methods."""

    @abstractmethod
    def _start(self, make: Callable[..., Steps], *arguments: Any) -> Work[Any]:
        """Check the arguments by calling `make`, and start the steps that it returns."""

    @abstractmethod
    def _start_behind(self, make: Callable[..., Steps], *arguments: Any) -> Work[Any]:
        """Do the same, and let the call go on while Python computes, where the backend can."""
