"""Replica functions that raise on all ranks or on one: who catches it can go on, or is told."""

import time

import numpy as np
import pytest

from helpers.mistakes import abandon, refused, replica, usable_after
from mpistrat import MirroredStrategy
from mpistrat.errors import CommunicationError, PeerLostError
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.mpi(ranks=[2, 3])


class MistakeError(Exception):
    """An error of the user's own."""


def fail() -> None:
    raise MistakeError("from the replica")


@pytest.mark.parametrize("devices", [1, 2])
def test_an_error_on_all_ranks_can_be_caught(devices: int) -> None:
    """All replicas raise alike; who catches it goes on with the same strategy."""
    with usable_after(*[f"CPU:{i}" for i in range(devices)]) as (strategy, _, size):
        for _ in range(3):
            with refused(MistakeError, "from the replica"):
                strategy.run(fail)
            values = strategy.run(lambda: np.float64(2))
            assert strategy.reduce("SUM", values, axis=None) == 2.0 * size * devices


def test_an_error_after_a_collective_can_be_caught() -> None:
    with usable_after() as (strategy, _, size):

        def replica_fn() -> None:
            raise MistakeError(float(replica().all_reduce("sum", 1.0)))

        for _ in range(3):
            with refused(MistakeError, f"{size}.0"):
                strategy.run(replica_fn)


@takes_long()
def test_a_strategy_made_after_a_caught_error_works() -> None:
    """What the ranks told each other about an old strategy means nothing to a new one."""
    for _ in range(20):
        with MirroredStrategy() as strategy, refused(MistakeError, "from the replica"):
            strategy.run(fail)
        with MirroredStrategy() as strategy:
            rank, size = strategy.extended.communicator.rank, strategy.num_replicas_in_sync
            time.sleep(0.002 * rank)  # the others wait, and so listen
            assert strategy.reduce("SUM", 1.0, axis=None) == size


def test_an_error_on_one_rank_reaches_all() -> None:
    """One replica raises and its rank goes on elsewhere: the others are told at their call."""
    strategy = MirroredStrategy()
    rank = strategy.extended.communicator.rank
    if rank == 1:
        with refused(MistakeError, "from the replica"):
            strategy.run(fail)
        time.sleep(1.0)
        with refused(CommunicationError, "rank"):
            strategy.reduce("SUM", np.ones(2), axis=None)
    else:
        strategy.run(lambda: None)
        with refused(PeerLostError, "rank 1 failed with MistakeError: from the replica"):
            strategy.reduce("SUM", np.ones(2), axis=None)
    with refused(CommunicationError, "broken on rank|gave up"):
        strategy.reduce("SUM", np.ones(2), axis=None)
    abandon(strategy)


def test_an_error_on_one_rank_meets_the_others_in_the_same_call() -> None:
    """The rank that failed catches its error and makes the next call as if nothing had been."""
    strategy = MirroredStrategy()
    if strategy.extended.communicator.rank == 1:
        with refused(MistakeError, "from the replica"):
            strategy.run(fail)
    else:
        strategy.run(lambda: None)
        time.sleep(0.5)
    with refused(CommunicationError, "MistakeError: from the replica"):
        strategy.reduce("SUM", np.ones(2), axis=None)
    abandon(strategy)
