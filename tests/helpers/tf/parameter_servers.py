"""TensorFlow clusters on the ranks of a test's job: the chief runs a body, the others serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpistrat.tensorflow as distribute
from mpistrat.cluster_resolver import MPIClusterResolver

__all__ = ["on_chief"]


def on_chief(body: Callable[[Any, Any], object], num_ps: int = 1, **arguments: Any) -> None:
    """Run ``body(strategy, coordinator)`` on the chief while the others serve. **Collective.**

    Parameters
    ----------
    body
        What to run; if it fails, all ranks do.
    num_ps
        Number of parameter servers.
    arguments
        Of the strategy.
    """
    resolver = MPIClusterResolver(num_ps=num_ps)
    if resolver.task_type != "chief":
        distribute.Server(resolver).join()
        return
    with distribute.ParameterServerStrategy(resolver, **arguments) as strategy:
        body(strategy, distribute.coordinator.ClusterCoordinator(strategy))
