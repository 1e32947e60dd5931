"""The strategies for arrays: the API of tf.distribute over a `Communicator`.

A call walks down through base (what users call) → extended (which replicas?) →
reduction/cross_device_ops (combine those of this rank) → collectives. One file or folder a
strategy, `one_device` the simplest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpistrat.strategy import context

if TYPE_CHECKING:
    from mpistrat.strategy.base import Strategy


def _default_strategy() -> Strategy:
    # Loaded when it is first asked for: most programs only use the strategy that they make.
    from mpistrat.strategy.default import default_strategy

    return default_strategy()


# Everything below the strategies asks `context` for the current one, so it cannot import them.
# Here, above both, the two meet.
context.set_default(_default_strategy)
