"""An error on one rank is raised on all ranks: each way of telling them, with threads as ranks."""

import pytest

from mpistrat.collectives import Communicator
from mpistrat.collectives.checking.raise_on_all import (
    all_or_none,
    attempt,
    first_or_none,
    outcomes,
)
from mpistrat.errors import (
    CheckpointError,
    ClusterError,
    CommunicationError,
    MismatchError,
    PeerLostError,
)
from mpistrat.testing.threads import run_ranks


class Interrupted(BaseException):
    """Ends a program, as KeyboardInterrupt does."""


def on_ranks(body, size=3):
    """Run a body on ranks as threads, each with its communicator."""

    def rank(comm):
        communicator = Communicator(comm)
        body(communicator)
        communicator.close()

    run_ranks(size, rank)


def fails_on(communicator, ranks, error):
    """Return a call that raises on some ranks, and returns the rank on others."""

    def call():
        if communicator.rank in ranks:
            raise error
        return communicator.rank

    return call


def test_results_of_all_by_rank():
    def body(communicator):
        assert all_or_none(communicator, lambda: communicator.rank**2, "squares") == [0, 1, 4]
        assert first_or_none(communicator, lambda: communicator.rank, root=1) == 1

    on_ranks(body)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (CheckpointError("no file"), CheckpointError, "^no file$"),
        (OSError("no disk"), ClusterError, "^OSError: no disk$"),
    ],
)
def test_all_raise_the_error_of_the_first_that_failed(error, kind, text):
    def body(communicator):
        with pytest.raises((kind, OSError), match="no ") as caught:
            all_or_none(communicator, fails_on(communicator, [1, 2], error), "making it")
        assert communicator.is_closed
        if communicator.rank:
            assert caught.value is error
        else:
            assert type(caught.value) is kind
            assert caught.match(text)
            assert "rank 1/3 raised this in making it" in str(caught.value.__cause__)

    on_ranks(body)


def test_outcomes_raise_nothing_and_leave_the_communicator_usable():
    def body(communicator):
        error = OSError("no disk")
        found = outcomes(communicator, fails_on(communicator, [1], error))
        assert found.results == [0, None, 2]
        assert {rank: one.text for rank, one in found.failures.items()} == {1: "OSError: no disk"}
        assert found.mine is (error if communicator.rank == 1 else None)
        assert communicator.allgather_object(communicator.rank) == [0, 1, 2]

    on_ranks(body)


def test_an_error_that_the_peers_know_is_raised_at_once():
    error = PeerLostError("gone")
    with pytest.raises(PeerLostError) as caught:
        outcomes(None, fails_on(Alone(), [0], error), known=(CommunicationError,))
    assert caught.value is error
    assert outcomes(None, lambda: 7).results == [7]


class Alone:
    """Who calls where there is one process."""

    rank = 0


def test_the_others_wait_for_one_that_fails():
    def body(communicator):
        kind, text = (OSError, "no disk") if communicator.rank == 1 else (MismatchError, "no disk")
        with pytest.raises(kind, match=text):
            first_or_none(communicator, fails_on(communicator, [1], OSError("no disk")), root=1)

    on_ranks(body)


def test_the_end_of_a_program_ends_the_wait_of_the_others():
    def body(communicator):
        def call():
            if communicator.rank == 1:
                raise Interrupted
            return 1

        kind = Interrupted if communicator.rank == 1 else CommunicationError
        with pytest.raises(kind):
            all_or_none(communicator, call, "making it")
        communicator.forget("the ranks cannot close it together")

    on_ranks(body)


def test_an_attempt_returns_what_can_be_raised_later():
    error = ValueError("later")
    assert attempt(None, lambda: 3) == (3, None)
    assert attempt(None, fails_on(Alone(), [0], error)) == (None, error)
    with pytest.raises(Interrupted):
        attempt(None, fails_on(Alone(), [0], Interrupted()))
