"""`run_ranks`: results by rank, all errors in one, and no hang."""

import threading
import time

import pytest

from mpistrat.testing.threads import RankError, run_ranks


def test_results_come_by_rank():
    assert run_ranks(3, lambda comm, add: comm.rank + add, 10) == [10, 11, 12]
    assert run_ranks(1, lambda comm: comm.world.size) == [1]


def test_all_errors_are_listed_and_the_first_is_the_cause():
    first_is_over = threading.Event()

    def rank(comm):
        if comm.rank == 1:
            first_is_over.wait(5)
            time.sleep(0.05)
            raise KeyError("later")
        if comm.rank == 2:
            first_is_over.set()
            raise ValueError("the first")

    with pytest.raises(RankError) as caught:
        run_ranks(3, rank)
    assert str(caught.value) == (
        "rank 2 of 3 raised ValueError: the first\nrank 1 of 3 raised KeyError: 'later'"
    )
    assert list(caught.value.errors) == [2, 1]
    assert caught.value.__cause__ is caught.value.errors[2]


def test_hang_names_the_threads_and_shows_where_they_are():
    is_over = threading.Event()

    def stuck_here(comm):
        if comm.rank == 1:
            is_over.wait(10)

    with pytest.raises(RankError, match=r"rank 1 of 2: did not end within 0\.2 s") as caught:
        run_ranks(2, stuck_here, timeout_s=0.2)
    is_over.set()
    assert "in stuck_here" in str(caught.value)
    assert "rank 0" not in str(caught.value)
    assert caught.value.errors == {}


def test_skip_of_a_rank_is_a_skip():
    with pytest.raises(pytest.skip.Exception, match="not here"):
        run_ranks(2, lambda comm: pytest.skip("not here"))
