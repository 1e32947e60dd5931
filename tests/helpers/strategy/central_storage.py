"""Strategies and variables for tests of central storage on several ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from helpers.mistakes import abandon, replica
from mpistrat.collectives import Communicator
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.central_storage.strategy import CentralStorageStrategy
from mpistrat.strategy.variables.base import Variable
from mpistrat.strategy.variables.options import VariableAggregation

__all__ = ["FIRST", "MEAN", "SUM", "communicator", "made", "replica_id", "tried"]

_, SUM, MEAN, FIRST = VariableAggregation


def made(strategy: Strategy, value: Any, **options: Any) -> Any:
    """Return a variable made in the scope of `strategy`."""
    with strategy.scope():
        return Variable(value, **options)


def replica_id() -> int:
    """Return the number of the replica that runs."""
    return replica().replica_id_in_sync_group


def communicator(strategy: Strategy) -> Communicator:
    """Return what the ranks of `strategy` talk by."""
    return strategy.extended.communicator


@contextmanager
def tried() -> Iterator[tuple[CentralStorageStrategy, Any, bool]]:
    """Give a strategy, a variable of it, and whether this rank makes the mistake."""
    strategy = CentralStorageStrategy()
    try:
        comm = communicator(strategy)
        yield strategy, made(strategy, np.arange(4.0), aggregation=SUM), comm.rank == comm.size - 1
    finally:
        abandon(strategy)
