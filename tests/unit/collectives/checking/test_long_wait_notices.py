"""In a long wait a few ranks tell the others where they wait; the rest would say the same."""

import time

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.collectives.checking import deadlock
from mpistrat.testing.sets import takes_long
from mpistrat.testing.threads import run_ranks

SIZE = 6


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(deadlock, "SAY_AFTER_S", 0.05)
    monkeypatch.setattr(deadlock, "SPREAD_S", 0.2)


def test_a_late_rank_is_told_of_once_or_twice():
    def rank(handle):
        communicator = Communicator(handle)
        if handle.rank == 0:
            time.sleep(0.05 + 0.2 * np.log2(SIZE) + 0.4)
        communicator.barrier(timeout=20)
        return communicator.health.peers.announced

    announced = run_ranks(SIZE, rank)
    assert announced[0] == 0
    assert 1 <= sum(announced) <= SIZE - 2


@takes_long()
def test_each_wait_is_told_of():
    """What was said of an earlier call does not silence the ranks in a later one."""

    def rank(handle):
        communicator = Communicator(handle)
        for _ in range(2):
            if handle.rank == 0:
                time.sleep(0.8)
            communicator.barrier(timeout=20)
        return communicator.health.peers.announced

    assert sum(run_ranks(SIZE, rank)) >= 2


@pytest.mark.parametrize("size", [1, 2, 6, 1000])
def test_the_times_are_spread_over_what_is_stated(size):
    times = [deadlock.say_after_s(size) for _ in range(500)]
    assert min(times) >= 0.05
    assert max(times) <= 0.05 + 0.2 * np.log2(size) + 1e-9
    assert len(set(times)) > 400 or size == 1
