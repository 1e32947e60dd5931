"""Unequal order of calls over several communicators: an error on every rank, not a long wait."""

import time

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.collectives.checking import deadlock
from mpistrat.errors import MismatchError
from mpistrat.testing.threads import run_ranks


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(deadlock, "SAY_AFTER_S", 0.05)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_unequal_order_is_an_error_on_every_rank(size):
    def rank(handle):
        first, second = Communicator(handle), Communicator(handle)
        mine = first if handle.rank == 1 else second
        with pytest.raises(MismatchError) as caught:
            mine.allreduce(np.ones(100 if mine is first else 50), timeout=20)
        text = str(caught.value)
        assert "two ranks wait for each other in calls of different communicators" in text
        assert "shape=(100,)" in text
        assert "shape=(50,)" in text
        assert "test_deadlock.py" in text
        return set(caught.value.calls)

    named = run_ranks(size, rank)
    assert 1 in set().union(*named)


@pytest.mark.parametrize("size", [2, 3])
def test_communicators_closed_in_another_order_are_an_error_on_every_rank(size):
    def rank(handle):
        pair = [Communicator(handle), Communicator(handle)]
        mine = pair[1 if handle.rank == 1 else 0]
        with pytest.raises(MismatchError, match="close") as caught:
            mine.close(timeout=20)
        assert "two ranks wait for each other in calls of different comm" in str(caught.value)
        return set(caught.value.calls)

    assert 1 in set().union(*run_ranks(size, rank))


def test_a_call_in_place_of_a_close_is_an_error_on_every_rank():
    def rank(handle):
        first, second = Communicator(handle), Communicator(handle)
        call = second.barrier if handle.rank == 1 else first.close
        with pytest.raises(MismatchError, match="close"):
            call(timeout=20)

    run_ranks(2, rank)


def test_a_rank_that_closes_late_is_no_error():
    def rank(handle):
        first, second = Communicator(handle), Communicator(handle)
        if handle.rank == 1:
            time.sleep(0.4)
        first.close(timeout=20)
        if handle.rank == 0:
            time.sleep(0.4)
        second.close(timeout=20)
        assert first.is_closed
        assert second.is_closed

    run_ranks(2, rank)


def test_a_late_rank_is_no_error():
    """The calls after the wait give their results."""

    def rank(handle):
        first, second = Communicator(handle), Communicator(handle)
        if handle.rank == 1:
            time.sleep(0.4)
        first.barrier(timeout=20)
        if handle.rank == 0:
            time.sleep(0.4)
        assert second.allreduce(1, timeout=20) == 2
        assert first.allreduce(2, timeout=20) == 4

    run_ranks(2, rank)


def test_asynchronous_calls_may_end_in_any_order():
    """As in MPI: a wait for one communicator advances what was started on the others."""

    def rank(handle):
        first, second = Communicator(handle), Communicator(handle)
        work = first.iallreduce(np.ones(1000))
        if handle.rank == 0:
            assert work.wait(20).sum() == 2000
            second.barrier(timeout=20)
        else:
            second.barrier(timeout=20)
            assert work.wait(20).sum() == 2000

    run_ranks(2, rank)


def test_queued_calls_count():
    def rank(handle):
        first, second = Communicator(handle), Communicator(handle)
        works = [first.iallreduce(np.ones(1000)) for _ in range(3)]
        if handle.rank == 0:
            assert works[-1].wait(20).sum() == 3000
        second.barrier(timeout=20)
        assert [work.wait(20).sum() for work in works] == [3000] * 3

    run_ranks(3, rank)


def test_a_communicator_of_some_ranks_does_not_hide_the_tangle():
    """Rank 2 computes; ranks 0 and 1 wait for each other all the same."""

    def rank(handle):
        first, second = Communicator(handle), Communicator(handle)
        if handle.rank == 2:
            time.sleep(1.0)
        with pytest.raises(MismatchError):
            (second if handle.rank == 1 else first).barrier(timeout=20)

    run_ranks(3, rank)
