"""Test whether a strategy, or the running replica, belongs to this package. **Local.**

The strategies derive from the marker classes here. So hooks into Keras can tell them from
TensorFlow's without importing the strategies, which install these hooks.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["OnRanks", "WithServers", "has_servers", "is_ours", "is_over_ranks", "our_replica"]


class OnRanks:
    """Mark a strategy that has its replicas on ranks; it has a ``communicator`` of these."""


class WithServers:
    """Mark a strategy that has its variables on parameter servers of this package."""


def is_ours(strategy: Any) -> bool:
    """Whether a strategy has its replicas on ranks."""
    return isinstance(strategy, OnRanks)


def is_over_ranks(strategy: Any) -> bool:
    """Whether it has them on several ranks."""
    return is_ours(strategy) and strategy.communicator.size > 1


def has_servers(strategy: Any) -> bool:
    """Whether a strategy has its variables on parameter servers of this package."""
    return isinstance(strategy, WithServers)


def our_replica() -> Any:
    """Return the context of the replica that runs, if its strategy is on ranks; else None."""
    context = tf.distribute.get_replica_context()
    return context if context is not None and is_ours(context.strategy) else None
