"""Base class of the conformance classes for strategies, and helpers to compare values.

The classes are in the modules beside this one, one an area. A number in a test's name is that of
the behaviour (b) or example (e) in the project's contract. Expected values are closed forms in
the number of replicas and the replica's id, so they hold for every layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpistrat.strategy.base import Strategy
from mpistrat.strategy.values import PerReplica
from mpistrat.testing.launching.rank import rank_from_environment
from mpistrat.testing.layouts import Layout

__all__ = ["StrategyConformance", "distribute", "equal", "local_ids", "rank_in", "together"]


class StrategyConformance:
    """Base of the conformance classes.

    Subclass one of them, implement `strategy`, and parametrize the class by ``layout``.

    Attributes
    ----------
    mirrors_variables
        Whether a variable made in the scope has a copy on each replica.

    Examples
    --------
    >>> @pytest.mark.parametrize("layout", LAYOUTS, ids=str)
    ... class TestMyReduce(ReduceConformance):
    ...     def strategy(self, layout):
    ...         return MyStrategy(layout.device_names)
    """

    mirrors_variables = True

    def strategy(self, layout: Layout) -> Strategy:
        """Return a new strategy with `layout`'s replicas; every rank calls this."""
        raise NotImplementedError(f"{type(self).__name__} must implement strategy(layout)")

    def copies(self, layout: Layout) -> int:
        """Return how many copies each rank has of a mirrored variable."""
        return layout.devices if self.mirrors_variables else 1


def rank_in(layout: Layout) -> int:
    """Return this process's rank, as the launcher says."""
    return rank_from_environment() if layout.ranks > 1 else 0


def local_ids(layout: Layout) -> list[int]:
    """Return the global ids that this rank's replicas should have, in order."""
    first = rank_in(layout) * layout.devices
    return list(range(first, first + layout.devices))


def distribute(strategy: Strategy, make: Callable[[int], Any]) -> PerReplica:
    """Return ``make(replica id)`` for each local replica."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: make(context.replica_id_in_sync_group)
    )


def together(layout: Layout, make: Callable[[int], Any]) -> list[Any]:
    """Return the values of :func:`distribute` for the replicas of all ranks, in replica order."""
    return [np.asarray(make(replica)) for replica in range(layout.replicas)]


def equal(actual: Any, expected: Any) -> None:
    """Fail unless both are equal in values, shape and dtype."""
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected), strict=True)
