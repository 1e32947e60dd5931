"""Machines find a name or an address by which others reach them."""

import ipaddress
import socket

import pytest

from mpistrat.errors import ClusterError
from mpistrat.system.network.addresses import Machine, reachable_host


def machine(name, *interfaces):
    return Machine(name, tuple(map(ipaddress.IPv4Interface, interfaces)))


ONE = machine("one", "172.17.0.1/16", "10.1.0.1/24", "10.77.0.1/24")
TWO = machine("two", "172.17.0.1/16", "10.77.0.2/24")
FAR = machine("far", "192.168.3.4/24")


def test_the_address_is_of_a_network_that_all_are_in():
    """Not of the container bridge, whose address all machines have."""
    assert ONE.address_for([TWO]) == "10.77.0.1"
    assert TWO.address_for([ONE]) == "10.77.0.2"
    assert ONE.address_for([TWO, FAR]) is None
    assert FAR.address_for([]) == "192.168.3.4"


def test_this_machine_has_its_name_and_no_loopback_address():
    here = Machine.here()
    assert here.name == socket.gethostname()
    assert not any(one.ip.is_loopback for one in here.interfaces)


def test_names_that_mean_nothing_or_oneself_are_unknown():
    assert not ONE.knows("no-such-machine.invalid")
    assert not ONE.knows("localhost")
    assert machine("localhost").knows("localhost")


def heard(*answers):
    """Return what gives a rank, at each call, what a test says of the others."""
    remaining = iter(answers)
    return lambda mine: [mine, *next(remaining)]


def test_names_are_taken_where_every_rank_knows_all(monkeypatch):
    monkeypatch.setattr(Machine, "here", lambda: ONE)
    monkeypatch.setattr(Machine, "knows", lambda self, name: True)
    assert reachable_host(heard([TWO, FAR], [([], None), ([], None)])) == "one"


def test_addresses_are_taken_where_a_rank_does_not_know_one(monkeypatch):
    monkeypatch.setattr(Machine, "here", lambda: ONE)
    monkeypatch.setattr(Machine, "knows", lambda self, name: True)
    assert reachable_host(heard([TWO], [(["one"], "10.77.0.2")])) == "10.77.0.1"


def test_without_names_and_a_common_network_it_says_who_lacks_what(monkeypatch):
    monkeypatch.setattr(Machine, "here", lambda: ONE)
    monkeypatch.setattr(Machine, "knows", lambda self, name: name != "far")
    text = "rank 0 on one cannot resolve the host name far, and one has no IPv4 address"
    with pytest.raises(ClusterError, match=text):
        reachable_host(heard([TWO, FAR], [([], None), ([], None)]))
