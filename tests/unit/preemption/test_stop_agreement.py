"""Ranks learn at the same step what any of them says, and wait only for those a step behind."""

import math
import threading
import time

import pytest

from mpistrat.collectives import Communicator
from mpistrat.preemption.stop_agreement import StopAgreement, Vote
from mpistrat.testing.threads import run_ranks

NOTHING = Vote(0, True, False, False, math.inf)
PAUSE_S = 0.051  # a step that is long enough for a round of its own


def test_what_one_rank_says_is_known_to_all_one_step_later():
    def rank(comm):
        said, counts = [], [0]

        def vote():
            is_mine = comm.rank == 1 and counts[0] == 3
            stop = 10 << 32 | comm.rank + 1
            return Vote(stop, True, True, True, 2e9) if is_mine else NOTHING

        with Communicator(comm) as communicator:
            agreement = StopAgreement(communicator, vote)
            for step in range(1, 6):
                counts[0] = step
                time.sleep(PAUSE_S)
                said.append(agreement.step())
            # Nothing was begun by the step that learnt of it: all ranks act on it first.
            said.append(agreement.now())
        return said

    for said in run_ranks(3, rank):
        assert said == [
            None,
            NOTHING,
            NOTHING,
            Vote(10 << 32 | 2, True, True, True, 2e9),
            None,
            NOTHING,
        ]


def test_the_signal_and_its_rank_are_told():
    vote = Vote(15 << 32 | 7, True, False, False, math.inf)
    assert (vote.signal, vote.rank, vote.asks) == (15, 6, True)
    assert (NOTHING.signal, NOTHING.asks) == (0, False)


def test_the_earliest_deadline_counts():
    def rank(comm):
        deadline = [math.inf, 1_800_000_000.5, 1_800_000_007.0][comm.rank]
        with Communicator(comm) as communicator:
            vote = Vote(0, False, False, False, deadline)
            return StopAgreement(communicator, lambda: vote).now().deadline

    assert run_ranks(3, rank) == [1_800_000_000.5] * 3


def test_no_rank_waits_for_one_that_is_less_than_a_step_behind():
    """Rank 1 is slow in step 3: the others end that step without it, and not the next."""
    has_ended = threading.Event()

    def rank(comm):
        waited = []
        with Communicator(comm) as communicator:
            agreement = StopAgreement(communicator, lambda: NOTHING)
            for step in range(5):
                if comm.rank == 1 and step == 3:
                    assert has_ended.wait(10)
                    time.sleep(0.3)
                start = time.monotonic()
                agreement.step()
                waited.append(time.monotonic() - start)
                if comm.rank == 0 and step == 3:
                    has_ended.set()
                time.sleep(PAUSE_S)
            agreement.now()
        return waited

    first, _ = run_ranks(2, rank)
    assert first[3] < 0.2
    assert first[4] > 0.2


def test_of_short_steps_only_some_begin_a_round():
    votes = []

    def rank(comm):
        def vote():
            votes.append(comm.rank)
            return NOTHING

        with Communicator(comm) as communicator:
            agreement = StopAgreement(communicator, vote)
            for _ in range(1000):
                agreement.step()
            agreement.now()

    run_ranks(2, rank)
    assert votes.count(0) == votes.count(1)  # on all ranks the same
    assert 10 <= votes.count(0) <= 500


@pytest.mark.parametrize("steps", [(3, 9), (9, 3), (5, 5), (0, 4)])
def test_unequal_numbers_of_steps(steps):
    """Those who are done go on with rounds, until all are."""

    def rank(comm):
        with Communicator(comm) as communicator:
            is_active = [True]
            agreement = StopAgreement(
                communicator, lambda: Vote(0, is_active[0], False, False, math.inf)
            )
            for _ in range(steps[comm.rank]):
                agreement.step()
                time.sleep(PAUSE_S)
            is_active[0] = False
            rounds = 1
            while agreement.now().is_active:
                rounds += 1
        return rounds

    assert all(rounds >= 1 for rounds in run_ranks(2, rank))
