"""A client of parameter servers: what went wrong with a change is raised, once."""

import socket
from types import SimpleNamespace

import pytest

from mpistrat.errors import CommunicationTimeoutError
from mpistrat.ps.client.client import Client
from mpistrat.ps.messages import Drop, Flush
from mpistrat.ps.transport.roles import Member
from mpistrat.ps.transport.stream import Stream


@pytest.fixture
def streams():
    """Give the ends of connections to two ps: a client's, and those of the ps."""
    pairs = [socket.socketpair() for _ in range(2)]
    ends = [
        [Stream(end, f"{name} {i}") for i, end in enumerate(one)]
        for name, one in zip(("ps", "member"), zip(*pairs, strict=True), strict=True)
    ]
    yield ends
    for one in (*ends[0], *ends[1]):
        one.close()


@pytest.fixture
def client(streams, monkeypatch):
    monkeypatch.setenv("MPISTRAT_TIMEOUT", "0.05")
    ps = [Member("ps", i, i + 1) for i in range(2)]
    roster = SimpleNamespace(ps=ps)
    mine = dict(zip(ps, streams[0], strict=True))
    return Client(SimpleNamespace(me=Member("chief", 0, 0), roster=roster, streams=mine))


def test_an_error_that_comes_with_an_answer_too_late_is_raised_by_the_next_call(client, streams):
    client.tell(0, Drop(1))
    with pytest.raises(CommunicationTimeoutError):
        client.ask(0, Flush())
    streams[1][0].post((2, [ValueError("of the push")], None))
    streams[1][0].post((3, [], None))
    with pytest.raises(ValueError, match="of the push"):
        client.flush()
    client.flush()  # asks nobody: there is nothing left


def test_an_error_of_one_ps_is_kept_where_another_does_not_answer(client, streams):
    client.tell(0, Drop(1))
    streams[1][0].post((2, [ValueError("of the push")], None))
    with pytest.raises(CommunicationTimeoutError):
        client.ask_all_ps(Flush())
    streams[1][0].post((3, [], None))
    with pytest.raises(ValueError, match="of the push"):
        client.flush()
