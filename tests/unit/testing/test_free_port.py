"""Ports for the servers that tests start."""

import socket

import pytest

from helpers.free_port import LOCAL_HOST, free_port
from mpistrat.errors import ClusterError


def test_a_free_port_can_be_bound():
    port = free_port()
    with socket.socket() as server:
        server.bind((LOCAL_HOST, port))
        assert server.getsockname() == (LOCAL_HOST, port)


def test_the_one_that_is_left_is_found():
    with socket.socket() as taken:
        taken.bind((LOCAL_HOST, free_port()))
        left = free_port()
        assert free_port([taken.getsockname()[1], left]) == left


def test_it_gives_up_and_says_what_it_tried():
    with socket.socket() as taken:
        taken.bind((LOCAL_HOST, free_port()))
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=rf"tried 1 of {port} to {port}.*in use"):
            free_port(range(port, port + 1))
