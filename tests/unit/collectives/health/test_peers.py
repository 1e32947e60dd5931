"""A rank's knowledge of its peers, from their notices."""

import pytest

from mpistrat.collectives.backends.control import Control
from mpistrat.collectives.health.peers import Peers
from mpistrat.errors import MismatchError, PeerLostError


class Post:
    """A backend of two ranks that keeps what one announces until the other listens."""

    name, size = "post", 2

    def __init__(self, rank):
        self.rank = rank
        self.other = None
        self.mail = []

    def announce(self, data):
        self.other.mail.append((self.rank, data))

    def heard(self):
        return self.mail.pop(0) if self.mail else None

    def ended(self, sequence):
        return []


@pytest.fixture
def peers():
    ends = [Post(0), Post(1)]
    ends[0].other, ends[1].other = ends[1], ends[0]
    return [Peers(end, Control(None, end, end, None, None)) for end in ends]


def check(peers, sequence):
    peers.listen()
    peers.check(sequence)


def test_a_mismatch_that_a_peer_found_is_one_here(peers):
    peers[1].say_broken(MismatchError("the ranks called different collectives"), 4)
    with pytest.raises(MismatchError, match="rank 1 found that the ranks called"):
        check(peers[0], 5)


def test_a_mismatch_of_who_has_failed_is_a_lost_peer(peers):
    """Whether this rank compares the lines first or hears of it, it raises the same class."""
    peers[1].say_failed(ZeroDivisionError("by zero"), 4)
    peers[1].say_broken(MismatchError("the ranks called different collectives"), 4)
    with pytest.raises(PeerLostError, match="rank 1 failed alone") as caught:
        check(peers[0], 5)
    assert caught.value.rank == 1


def test_a_mismatch_after_all_have_failed_is_one(peers):
    for one in peers:
        one.say_failed(ValueError("on all"), 4)
    peers[1].say_broken(MismatchError("the ranks called different collectives"), 4)
    with pytest.raises(MismatchError):
        check(peers[0], 5)
