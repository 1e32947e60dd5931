"""A worker gets the right call in each synchronous round."""

import pytest

from helpers.coordinator.coordinator_calls import call_with, idle_workers
from mpistrat.coordinator.chief.round_queue import RoundQueue


@pytest.fixture
def workers():
    return idle_workers(2)


def test_a_worker_whose_call_waits_for_that_of_a_lost_one_gets_that_first(workers):
    rounds = RoundQueue(workers)
    first = call_with()
    second = call_with(first.value)
    rounds.add(first)
    rounds.add(second)
    assert rounds.take_for(workers[0], []) is first
    assert rounds.take_for(workers[1], []) is None
    workers[0].is_lost = True
    rounds.put_back([first])
    assert rounds.take_for(workers[1], []) is first
    assert rounds.take_for(workers[1], []) is None
    first.value.set_result(b"")
    assert rounds.take_for(workers[1], []) is second


def test_a_workers_own_call_comes_before_that_of_a_lost_one(workers):
    rounds = RoundQueue(workers)
    calls = [call_with(), call_with()]
    for one in calls:
        rounds.add(one)
    workers[0].is_lost = True
    assert rounds.take_for(workers[1], []) is calls[1]
    assert rounds.take_for(workers[1], calls[1:]) is calls[0]
