"""Test whether a strategy, or the running replica, belongs to this package. **Local.**"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["has_servers", "is_ours", "is_over_ranks", "our_replica"]


def is_ours(strategy: Any) -> bool:
    """Whether a strategy has its replicas on ranks."""
    from mpistrat.tensorflow.strategies.strategy_members import RankMembers

    return isinstance(strategy, RankMembers)


def is_over_ranks(strategy: Any) -> bool:
    """Whether it has them on several ranks."""
    return is_ours(strategy) and strategy.communicator.size > 1


def has_servers(strategy: Any) -> bool:
    """Whether a strategy has its variables on parameter servers of ours."""
    from mpistrat.tensorflow.strategies.parameter_server import ParameterServerStrategy

    return isinstance(strategy, ParameterServerStrategy)


def our_replica() -> Any:
    """Return the context of the replica that runs, if it is one of ours."""
    context = tf.distribute.get_replica_context()
    return context if context is not None and is_ours(context.strategy) else None
