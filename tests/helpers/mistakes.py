"""Check that a mistake on some ranks is an error on all, soon, and that work can go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from mpistrat.collectives import shutdown
from mpistrat.errors import CommunicationError
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.context import get_replica_context
from mpistrat.strategy.mirrored import MirroredStrategy
from mpistrat.strategy.replicas.replica_context import ReplicaContext

__all__ = ["SOON_S", "abandon", "refused", "replica", "usable_after"]

SOON_S = 10.0
"""Seconds within which every rank must see an error."""


@contextmanager
def refused(kind: type[BaseException], match: str) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error on this rank, and that it comes soon."""
    start = time.monotonic()
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert time.monotonic() - start < SOON_S


@contextmanager
def usable_after(*devices: str) -> Iterator[tuple[Strategy, int, int]]:
    """Give a strategy, this rank and their number; afterwards the strategy must still work."""
    with MirroredStrategy(devices or None) as strategy:
        communicator = strategy.extended.communicator
        yield strategy, communicator.rank, communicator.size
        result = strategy.run(lambda: np.ones(3))
        expected = np.full(3, 1.0 * strategy.num_replicas_in_sync)
        np.testing.assert_array_equal(strategy.reduce("SUM", result, axis=None), expected)


def abandon(strategy: Strategy) -> None:
    """Close a strategy that can no longer be used, and let the job end well all the same."""
    with suppress(CommunicationError):
        strategy.close()
    shutdown.forget(strategy.extended.communicator)


def replica() -> ReplicaContext:
    """Return the replica that runs."""
    found = get_replica_context()
    assert found is not None
    return found
