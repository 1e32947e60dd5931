"""Find the ranks that save and restore some objects together."""

from __future__ import annotations

from collections.abc import Sequence

from mpistrat.checkpoint.objects.graph import Node
from mpistrat.collectives import Communicator
from mpistrat.errors import ContextError, UsageError
from mpistrat.strategy import context

__all__ = ["communicator_of"]


def communicator_of(nodes: Sequence[Node]) -> Communicator | None:
    """Return the communicator of the objects' strategy, else of the current one; None if alone.

    Raises
    ------
    UsageError
        The objects are of several strategies with several ranks.
    ContextError
        This is inside a replica function.
    """
    mode = context.current()
    if mode is not None and mode.replica is not None:
        raise ContextError(
            "a checkpoint inside a replica function; save and restore outside of run(), or use"
            " get_replica_context().merge_call()"
        )
    found: dict[int, Communicator] = {}
    strategies = [getattr(node.thing, "distribute_strategy", None) for node in nodes]
    for strategy in [one for one in strategies if one is not None] or [context.get_strategy()]:
        communicator = strategy.extended.communicator
        if communicator.size > 1:
            found[id(communicator)] = communicator
    if len(found) > 1:
        raise UsageError(
            "a checkpoint of variables of several strategies; make a Checkpoint for each strategy"
        )
    return next(iter(found.values()), None)
