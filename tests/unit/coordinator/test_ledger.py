"""The chief's account of calls, without connections: what is next, and what a loss means."""

import pickle

import pytest

from helpers.coordinator.coordinator_calls import call_with, idle_workers
from mpistrat.coordinator.chief.ledger import Ledger
from mpistrat.coordinator.chief.round_queue import RoundQueue
from mpistrat.coordinator.chief.unordered_queue import UnorderedQueue
from mpistrat.coordinator.chief.worker_state import WorkerState
from mpistrat.coordinator.messages import CallResult
from mpistrat.errors import CoordinatorError, PeerLostError
from mpistrat.ps.transport.roles import Member
from mpistrat.system.sent_errors import SentError

LOST = PeerLostError("worker 0 has ended", 1)


@pytest.fixture
def workers():
    return idle_workers(2)


def begin(ledger, worker, number, most=1):
    """Let a worker have its next calls under numbers from `number` on."""
    calls = ledger.take_for(worker, most)
    for index, one in enumerate(calls):
        one.number = number + index
        worker.sent[one.number] = one
    return calls


def filled(workers, queue, count, can_lose=True):
    ledger = Ledger(workers, queue, can_lose)
    calls = [call_with() for _ in range(count)]
    for one in calls:
        queue.add(one)
    return ledger, calls


def test_calls_of_a_lost_worker_run_on_others_first(workers):
    ledger, calls = filled(workers, UnorderedQueue(workers, None), 3)
    assert begin(ledger, workers[0], 1, 2) == calls[:2]
    assert ledger.lose(workers[0], LOST) == 2
    assert ledger.has_lost
    assert ledger.end is None
    assert begin(ledger, workers[1], 3, 9) == calls
    assert ledger.is_busy


def test_a_job_that_cannot_lose_a_worker_ends(workers):
    ledger, calls = filled(workers, UnorderedQueue(workers, None), 1, can_lose=False)
    begin(ledger, workers[0], 1)
    assert ledger.lose(workers[0], LOST) is None
    with pytest.raises(PeerLostError, match="worker 0 has ended"):
        ledger.raise_error()
    assert not calls[0].value.is_done


def test_a_call_that_ends_worker_after_worker_ends_the_job():
    workers = idle_workers(4)
    ledger, calls = filled(workers, UnorderedQueue(workers, None), 1)
    for number, worker in enumerate(workers[:3], 1):
        assert begin(ledger, worker, number) == calls
        assert ledger.lose(worker, LOST) == 1
    with pytest.raises(CoordinatorError, match="3 workers have ended with abs under way"):
        ledger.raise_error()


def test_an_error_is_raised_once_and_what_has_not_begun_is_given_up(workers):
    ledger, calls = filled(workers, UnorderedQueue(workers, None), 3)
    begin(ledger, workers[0], 1)
    begin(ledger, workers[1], 2)
    sent = SentError.whole(ValueError("its own"), "the traceback")
    ledger.finish(CallResult(1, sent, None), workers[0])
    with pytest.raises(ValueError, match="its own"):
        ledger.raise_error()
    ledger.raise_error()
    with pytest.raises(CoordinatorError, match="abs was not run"):
        calls[2].value.raise_error()
    assert ledger.is_busy
    ledger.finish(CallResult(2, None, pickle.dumps(7)), workers[1])
    assert calls[1].value.fetch() == 7
    assert not ledger.is_busy


def test_a_call_whose_argument_has_failed_is_not_sent(workers):
    ledger, calls = filled(workers, UnorderedQueue(workers, None), 1)
    failed = call_with(calls[0].value)
    ledger.queue.add(failed)
    begin(ledger, workers[0], 1)
    calls[0].value.set_error(ValueError("no argument"))
    assert begin(ledger, workers[1], 2) == []
    with pytest.raises(ValueError, match="no argument"):
        failed.value.raise_error()


def test_a_bound_of_staleness_holds_calls_back(workers):
    ledger, calls = filled(workers, UnorderedQueue(workers, 1), 3)
    assert begin(ledger, workers[0], 1) == calls[:1]
    assert begin(ledger, workers[1], 2, 2) == calls[1:2]
    ledger.finish(CallResult(1, None, b""), workers[0])
    assert begin(ledger, workers[0], 3) == calls[2:]


def test_a_bound_of_staleness_holds_calls_back_for_one_that_moved_behind_younger_ones():
    workers = idle_workers(3)
    ledger, calls = filled(workers, UnorderedQueue(workers, 2), 5)
    begin(ledger, workers[0], 1)
    assert begin(ledger, workers[1], 2, 2) == calls[1:3]
    ledger.lose(workers[0], LOST)
    assert begin(ledger, workers[1], 4) == calls[:1]
    assert begin(ledger, workers[2], 5) == []
    ledger.finish(CallResult(4, None, b""), workers[1])
    assert begin(ledger, workers[2], 5) == calls[3:4]


def test_a_round_ends_when_all_of_its_calls_have_ended(workers):
    queue = RoundQueue(workers)
    ledger, calls = filled(workers, queue, 3)
    begin(ledger, workers[1], 5)
    begin(ledger, workers[0], 6)
    assert begin(ledger, workers[0], 7) == []  # the third is of the next round
    ledger.finish(CallResult(6, None, b""), workers[0])
    assert queue.take_ended() is None
    ledger.finish(CallResult(5, None, b""), workers[1])
    assert queue.take_ended() == [6, 5]  # by their places
    assert not queue.has_startable_call
    queue.begin_next()
    assert begin(ledger, workers[0], 7) == calls[2:]


def test_a_short_round_ends_when_somebody_waits(workers):
    queue = RoundQueue(workers)
    ledger, _ = filled(workers, queue, 1)
    begin(ledger, workers[0], 1)
    ledger.finish(CallResult(1, None, b""), workers[0])
    assert queue.is_open
    assert queue.take_ended() is None
    queue.end_short()
    assert queue.take_ended() == [1]
    queue.begin_next()
    assert not queue.is_open


def test_a_round_with_an_error_is_void(workers):
    queue = RoundQueue(workers)
    ledger, _ = filled(workers, queue, 2)
    begin(ledger, workers[0], 1)
    ledger.finish(CallResult(1, SentError("", "the traceback"), None), workers[0])
    assert queue.take_ended() == []  # the other call was given up
    queue.begin_next()
    assert not ledger.is_busy


def test_a_loss_that_no_worker_makes_up_for_ends_rounds():
    workers = [
        WorkerState(Member("worker", 0, 1, ("CPU:0", "CPU:1")), None),
        WorkerState(Member("worker", 1, 2), None),
    ]
    ledger, _ = filled(workers, RoundQueue(workers), 2)
    begin(ledger, workers[0], 1)
    assert ledger.lose(workers[0], LOST) is None
    with pytest.raises(PeerLostError, match="no worker that is left has 2 replicas"):
        ledger.raise_error()


@pytest.mark.parametrize(
    ("task_type", "can_lose", "goes_on"),
    [("ps", True, False), ("evaluator", True, True), ("evaluator", False, False)],
)
def test_other_members_that_end(workers, task_type, can_lose, goes_on):
    ledger = Ledger(workers, UnorderedQueue(workers, None), can_lose)
    ledger.lose_member(Member(task_type, 0, 3))
    assert (ledger.end is None) is goes_on
    assert ledger.has_lost is goes_on
