"""Which call a worker gets in a synchronous round."""

import pytest

from mpistrat.coordinator.arguments import Arguments
from mpistrat.coordinator.chief.round_queue import RoundQueue
from mpistrat.coordinator.chief.scheduled_call import Call
from mpistrat.coordinator.chief.worker_state import WorkerState
from mpistrat.coordinator.remote_value import RemoteValue
from mpistrat.coordinator.shipping import Function
from mpistrat.ps.transport.roles import Member


@pytest.fixture
def workers():
    members = [Member("worker", index, index + 1) for index in range(2)]
    return [WorkerState(member, None) for member in members]


def call(*needed):
    value = RemoteValue(lambda value: None)
    return Call(Function(1, abs), Arguments(needed=needed), value, None)


def test_a_worker_whose_call_waits_for_that_of_a_lost_one_gets_that_first(workers):
    rounds = RoundQueue(workers)
    first = call()
    second = call(first.value)
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
    calls = [call(), call()]
    for one in calls:
        rounds.add(one)
    workers[0].is_lost = True
    assert rounds.take_for(workers[1], []) is calls[1]
    assert rounds.take_for(workers[1], calls[1:]) is calls[0]
