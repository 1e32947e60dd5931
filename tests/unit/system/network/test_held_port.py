"""A port that is held for a server."""

import socket

import pytest

from mpistrat.system.network.held_port import held_port


def listening(port, shares):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(shares))
    server.bind(("", port))
    server.listen()
    return server


def test_a_server_that_allows_it_opens_the_port_and_no_other_program_gets_it():
    with held_port() as port, held_port() as another:
        assert port != another
        with pytest.raises(OSError, match="in use"):
            listening(port, shares=False)
        with listening(port, shares=True):
            pass
