"""UDP ports that tell whether processes still run: real ones, of this machine."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mpistrat
from mpistrat.system.liveness import udp
from mpistrat.system.liveness import udp_probe as watch
from mpistrat.system.liveness.udp import Place
from mpistrat.system.liveness.udp_probe import UdpProbe, deaf, watched
from mpistrat.testing.sets import takes_long

LIMIT_S = 10.0
ROOT = str(Path(mpistrat.__file__).parents[1])
OTHER = """
import sys
from mpistrat.system.liveness import udp
print(udp.here(), flush=True)
sys.stdin.read()
"""
FORKS = """
import os, sys, time
from mpistrat.system.liveness import udp
print(udp.here(), flush=True)
if os.fork():
    sys.stdin.read()
    os._exit(0)
time.sleep(60)
"""


@pytest.fixture
def process():
    """Give what starts another process, and where that is; ends all of them."""
    started = []

    def start(program=OTHER):
        one = subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": ROOT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        started.append(one)
        return one, int(one.stdout.readline())

    yield start
    for one in started:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(one.pid, signal.SIGKILL)
        one.wait(LIMIT_S)
        one.stdin.close()
        one.stdout.close()


def ended_within(watch, seconds, wait=0):
    """Return who has ended, as soon as anyone has."""
    end = time.monotonic() + seconds
    while not (found := watch.ended(wait)) and time.monotonic() < end:
        time.sleep(0.01)
    return list(found)


def leads_to(place):
    """Wait until the answers to a trial are there; tell whether the address is right."""
    end = time.monotonic() + LIMIT_S
    while udp.port().leads_to(place) is None and time.monotonic() < end:
        udp.port().look()
        time.sleep(0.01)
    return udp.port().leads_to(place)


@pytest.fixture(autouse=True)
def a_port():
    udp._forget()
    assert udp.here() == udp.here() > 0
    yield
    udp._forget()


@takes_long()
@pytest.mark.parametrize(
    "program",
    [pytest.param(OTHER, marks=takes_long()), FORKS],
    ids=["alone", "with a child that lives on"],
)
def test_the_end_of_a_process_is_noticed_in_a_wait(process, program):
    other, place = process(program)
    peers = UdpProbe({7: place})
    assert leads_to(Place.of(place))
    assert ended_within(peers, 0.7) == []
    other.stdin.close()
    other.wait(LIMIT_S)
    ended = time.monotonic()
    assert ended_within(peers, LIMIT_S) == [7]
    assert time.monotonic() - ended < 4.0
    assert udp.is_known_to_have_ended(place)
    assert not peers.may_send()


def test_a_wait_that_goes_on_asks_nobody(process):
    _, place = process()
    peers = UdpProbe({1: place})
    assert leads_to(Place.of(place))
    asked = []
    udp.port().ask = asked.append
    for wait in range(40):
        assert list(peers.ended(wait)) == []
        time.sleep(0.01)
    assert not asked


def test_what_comes_is_thrown_away():
    address, port, *_ = Place.of(udp.here())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"news", (address, port))
        time.sleep(0.05)
        with pytest.raises(BlockingIOError):
            udp.port()._socket.recv(10)


@takes_long()
def test_an_address_that_refuses_a_living_process_says_nothing(process):
    """As that of a bridge does which every machine has: it leads to another one."""
    _, place = process()
    other = Place.of(place)
    with udp._opened() as elsewhere:
        free = elsewhere.getsockname()[1]
    wrong = other._replace(port=free, owner=7)
    peers = UdpProbe({1: wrong.number, 2: place})
    assert leads_to(other)
    assert not leads_to(wrong)
    assert ended_within(peers, 1.5) == []
    assert not udp.is_known_to_have_ended(place)
    assert not udp.is_known_to_have_ended(wrong.number)


@takes_long()
def test_a_machine_that_refuses_nothing_says_nothing(process):
    other, place = process()
    silent = Place.of(place)
    silent = silent._replace(closed=silent.port)
    peers = UdpProbe({1: silent.number})
    assert not leads_to(silent)
    other.stdin.close()
    other.wait(LIMIT_S)
    assert ended_within(peers, 1.5) == []
    assert peers.may_send()


def test_a_silent_process_is_asked_after_before_something_is_sent(process):
    other, place = process()
    peers = UdpProbe({1: place})
    assert leads_to(Place.of(place))
    peers.ended()
    assert peers.may_send()
    time.sleep(0.3)
    other.stdin.close()
    other.wait(LIMIT_S)
    assert not peers.may_send()
    time.sleep(0.01)
    assert not peers.may_send()


def test_a_place_is_a_number_and_back():
    place = Place("255.0.0.255", 65535, 1, (1 << 64) - 1)
    assert 0 < place.number < 1 << 128
    assert Place.of(place.number) == place


def on_machines(*sizes):
    """Return the places of ranks on machines of these sizes, in this order."""
    hosts = [f"10.0.0.{index}" for index, size in enumerate(sizes) for _ in range(size)]
    return [Place(host, port, 1, 5).number for port, host in enumerate(hosts, 2)]


@pytest.mark.parametrize("sizes", [(3,), (1, 1), (2, 1), (4, 4, 4), (20, 1, 7), (9,) * 12])
def test_every_process_is_watched_by_a_few(sizes):
    places = on_machines(*sizes)
    watchers = [watched(places, rank) for rank in range(len(places))]
    for rank in range(len(places)):
        by = [one for one, theirs in enumerate(watchers) if rank in theirs]
        assert rank not in by
        assert 1 <= len(by) <= watch._WATCHERS * watch._NEXT_MACHINES + watch._NEXT_RANKS
        machines = {places[one] >> 32 for one in by} - {places[rank] >> 32}
        assert len(machines) == min(watch._NEXT_MACHINES, len(sizes) - 1)


def test_who_is_watched_otherwise_is_left_out():
    places = on_machines(2, 2)
    assert watched(places, 1, near=[0, 1]) == [2, 3]
    assert watched([0, 0, 0], 0, near=[0]) == [1, 2]


def test_nothing_is_sent_to_the_dead_and_those_beside_them():
    places = on_machines(2, 2, 1)
    assert deaf(places, 0, ends_machines=True) == set()
    udp.mark_ended(places[3])
    assert deaf(places, 0, ends_machines=True) == {2, 3}
    assert deaf(places, 0, ends_machines=False) == {3}
    assert deaf(places, 2, ends_machines=True) == {3}  # who is beside it lives
    assert deaf([], 0, ends_machines=True) == set()
