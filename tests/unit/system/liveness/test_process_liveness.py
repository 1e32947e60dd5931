"""Processes of this machine: known by their tag, and watched by rank, until they end."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from mpistrat.system.liveness import pidfd, tagged_process
from mpistrat.system.liveness.pidfd import PidfdProbe, Process
from mpistrat.system.processes import process_status, process_tag

NO_PIDFD = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd")


@pytest.fixture
def child():
    """Give another process, which waits."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as one:
        yield one
        one.kill()


def kill(child):
    """End it; it stays a zombie, since nobody takes note."""
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


def tag_of(child):
    return child.pid << 34 | process_status.read(child.pid).start


def number_of_descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_the_status_of_this_process():
    found = process_status.read(os.getpid())
    assert found.parent == os.getppid()
    assert found.start > process_status.read(1).start >= 0
    assert not found.has_ended


def test_the_status_of_a_zombie_and_of_nobody(child):
    kill(child)
    assert process_status.read(child.pid).has_ended
    child.wait()
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        process_status.read(child.pid)


def without_pidfd(monkeypatch):
    monkeypatch.setattr(pidfd, "opened", lambda _: None)


@pytest.mark.parametrize("prepare", [lambda _: None, without_pidfd], ids=["pidfd", "status"])
def test_a_process_is_known_by_more_than_its_number(child, prepare, monkeypatch):
    prepare(monkeypatch)
    mine = process_tag.my_tag()
    assert 0 < mine < 2**56
    assert process_tag.pid_of(mine) == os.getpid()
    assert not tagged_process.has_ended(mine)
    assert tagged_process.has_ended(mine ^ 1)  # had my number, began at another time
    tag = tag_of(child)
    assert not tagged_process.has_ended(tag)
    kill(child)
    assert tagged_process.has_ended(tag)
    child.wait()
    assert tagged_process.has_ended(tag)


@NO_PIDFD
def test_the_descriptor_of_a_process_that_has_ended_is_closed(child):
    before = number_of_descriptors()
    tag = tag_of(child)
    assert not tagged_process.has_ended(tag)
    assert number_of_descriptors() == before + 1
    kill(child)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(tagged_process.has_ended, [tag] * 40))
    assert number_of_descriptors() == before


@NO_PIDFD
def test_a_probe_tells_which_ranks_have_ended(child):
    me = Process.current()
    other = Process(child.pid, me.namespace)
    hidden = Process(child.pid, "of another container")
    probe = PidfdProbe([me, other, hidden], 0)
    assert list(probe.ended()) == []
    kill(child)
    assert list(probe.ended()) == list(probe.ended(1)) == [1]
    before = number_of_descriptors()
    probe.close()
    assert number_of_descriptors() == before - 1


@NO_PIDFD
def test_a_probe_knows_who_had_ended_before(child):
    kill(child)
    child.wait()
    me = Process.current()
    assert list(PidfdProbe([me, Process(child.pid, me.namespace)], 0).ended()) == [1]


def test_where_there_is_no_pidfd_nobody_is_watched(child, monkeypatch):
    monkeypatch.setattr(pidfd, "opened", lambda _: None)
    me = Process.current()
    probe = PidfdProbe([me, Process(child.pid, me.namespace)], 0)
    kill(child)
    assert list(probe.ended()) == []


@NO_PIDFD
def test_a_probe_is_closed_by_a_signal_handler_of_the_thread_that_looks(child, monkeypatch):
    monkeypatch.setattr(pidfd, "_POLL_ENDS_S", 0.05)
    kill(child)
    probe = PidfdProbe([Process.current(), Process(child.pid, Process.current().namespace)], 0)
    original = probe._poll

    class Interrupted:
        unregister = original.unregister

        def poll(self, timeout):
            found = original.poll(timeout)
            probe.close()
            return found

    probe._poll = Interrupted()
    assert probe.ended() == []
    assert probe._ranks == {}


@NO_PIDFD
def test_a_probe_is_closed_while_another_thread_looks(child):
    kill(child)
    probe = PidfdProbe([Process.current(), Process(child.pid, Process.current().namespace)], 0)
    original, closers = probe._poll, ThreadPoolExecutor(1)

    class Slow:
        unregister = original.unregister

        def poll(self, timeout):
            found = original.poll(timeout)
            self.closing = closers.submit(probe.close)
            wait([self.closing], 0.1)
            return found

    probe._poll = slow = Slow()
    assert probe.ended() == [1]
    slow.closing.result(20)
    closers.shutdown()
