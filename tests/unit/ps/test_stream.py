"""Messages between members: whole, in order, of any size, and never a wait without an end."""

import socket
import threading

import ml_dtypes
import numpy as np
import pytest

from mpistrat.errors import CommunicationTimeoutError, PeerLostError
from mpistrat.ps.transport.stream import Stream

LONG_S = 20.0
MESSAGES = [
    None,
    ("read", 3, {"a": [1, 2.5, "text"]}),
    b"x" * 100_000,
    np.arange(5),
    np.arange(200_000.0),
    [np.ones((300, 300), ml_dtypes.bfloat16), np.array(3), "end"],
    np.zeros((0, 3)),
    np.asfortranarray(np.arange(10_000).reshape(100, 100)),
    np.arange(20_000)[::3],
    [np.full(1025, i, np.int16) for i in range(20)],
]


@pytest.fixture
def ends():
    first, second = socket.socketpair()
    streams = Stream(first, "the second"), Stream(second, "the first", rank=7)
    yield streams
    for stream in streams:
        stream.close()


def same(found, expected):
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, np.ndarray):
        return found.dtype == expected.dtype and np.array_equal(found, expected)
    return found == expected


@pytest.mark.parametrize("message", MESSAGES, ids=range(len(MESSAGES)))
def test_a_message_arrives_as_it_was(ends, message):
    sender = threading.Thread(target=ends[0].send, args=(message, LONG_S))
    sender.start()
    found = ends[1].receive(LONG_S)
    sender.join()
    assert same(found, message)


def test_many_messages_arrive_in_order(ends):
    messages = MESSAGES * 20

    def send():
        for message in messages:
            ends[0].send(message, LONG_S)

    sender = threading.Thread(target=send)
    sender.start()
    for message in messages:
        assert same(ends[1].receive(LONG_S), message)
    sender.join()
    assert ends[1].take() == []


def test_what_was_received_may_be_changed(ends):
    value = np.zeros(10_000)
    sender = threading.Thread(target=ends[0].send, args=(value, LONG_S))
    sender.start()
    found = ends[1].receive(LONG_S)
    sender.join()
    found += 1
    assert value.sum() == 0


def test_posting_never_waits(ends):
    value = np.arange(1_000_000.0)
    for _ in range(3):
        ends[0].post(value)
    assert ends[0].has_unsent
    found = []
    while len(found) < 3:
        found += ends[1].take()
        ends[0].flush()
    assert not ends[0].has_unsent
    assert all(same(one, value) for one in found)


def test_waits_have_deadlines_that_name_the_peer(ends):
    with pytest.raises(CommunicationTimeoutError, match="the first to send an answer") as caught:
        ends[1].receive(0.01, "an answer")
    assert caught.value.missing == (7,)
    with pytest.raises(CommunicationTimeoutError, match="the second to take a message in"):
        ends[0].send(np.zeros(10_000_000), 0.01)


def test_a_peer_that_has_ended_is_lost(ends):
    ends[0].post("last words")
    ends[0].close()
    assert ends[1].receive(LONG_S) == "last words"
    with pytest.raises(PeerLostError, match="the first has ended") as caught:
        ends[1].receive(LONG_S)
    assert caught.value.rank == 7
    with pytest.raises(PeerLostError, match="the first has ended"):
        ends[1].post("anything")


def test_a_peer_that_ends_while_somebody_waits(ends):
    timer = threading.Timer(0.05, ends[0].close)
    timer.start()
    with pytest.raises(PeerLostError):
        ends[1].receive(LONG_S)
    timer.join()
