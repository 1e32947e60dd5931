"""A rank of Horovod tells the others who it is."""

import os
import socket
from types import SimpleNamespace

import pytest

pytest.importorskip("tensorflow")

from mpistrat.system.processes import process_token
from mpistrat.tensorflow.graph.horovod import session


def test_processes_of_two_containers_are_two(monkeypatch):
    """They may have one host name, and one number."""
    horovod, states = SimpleNamespace(is_initialized=lambda: False), []
    monkeypatch.setattr(os, "getpid", lambda: 7)
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    for token in ("a", "b"):  # each process draws its own
        monkeypatch.setattr(process_token, "_TOKEN", token)
        states.append(session._state(horovod))
    assert states[0].process != states[1].process
