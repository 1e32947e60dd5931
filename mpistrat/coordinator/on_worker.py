"""Stand for the chief's `ClusterCoordinator` in functions on workers, and refuse calls there."""

from __future__ import annotations

from typing import Any

from mpistrat.errors import ContextError
from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy

__all__ = ["CoordinatorOnWorker", "coordinator_here"]


class _CallOnWorkerError(ContextError, AttributeError):
    """Both, so that ``hasattr`` answers no."""


class CoordinatorOnWorker:
    """Stand for the chief's coordinator in what a function captures, such as its ``self``.

    Parameters
    ----------
    strategy
        The strategy as this worker has it.
    """

    def __init__(self, strategy: ParameterServerStrategy) -> None:
        self.strategy = strategy

    def __reduce__(self) -> Any:
        return coordinator_here, (self.strategy,)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what Python looks for by itself
            raise AttributeError(name)
        raise _CallOnWorkerError(
            f"ClusterCoordinator.{name} in a function on"
            f" {self.strategy.extended.client.endpoint.me}; only the chief sends out work: call"
            " it there, and pass results to functions as arguments of schedule"
        )


def coordinator_here(strategy: ParameterServerStrategy) -> Any:
    """Return this member's coordinator: the real one on the chief, or what stands for it."""
    found = strategy.coordinator
    return CoordinatorOnWorker(strategy) if found is None else found
