"""A group of processes ends as a whole, also where a signal comes while it starts."""

import os
import signal
import subprocess
import threading
import time

import pytest

from mpistrat.errors import BackendUnavailableError
from mpistrat.system.processes import process_group
from mpistrat.system.processes.process_group import kill_group, started_group


class SignalError(Exception):
    pass


def come(number, frame):
    raise SignalError


def wait_until_ended(pid, timeout_s=20):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                if file.read().split()[2] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} still runs")


@pytest.fixture
def sigterm_raises():
    before = signal.signal(signal.SIGTERM, come)
    yield
    signal.signal(signal.SIGTERM, before)


def test_output_and_status():
    with started_group(["sh", "-c", "echo out; echo err >&2; exit 3"]) as process:
        assert process.stdout.read() == b"out\nerr\n"
    assert process.returncode == 3


def test_an_error_ends_its_child_processes_too():
    seen = []

    def fail_in_the_block():
        with started_group(["sh", "-c", "sleep 10 & echo $!; wait"]) as process:
            seen.extend([process, int(process.stdout.readline())])
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        fail_in_the_block()
    process, child = seen
    assert process.returncode == -signal.SIGKILL
    wait_until_ended(child)


def test_a_signal_while_it_starts_ends_it(monkeypatch, sigterm_raises):
    started, real = [], subprocess.Popen

    def popen(*arguments, **options):
        started.append(real(*arguments, **options))
        signal.raise_signal(signal.SIGTERM)
        time.sleep(0.01)  # where a handler would run
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(SignalError), started_group(["sleep", "10"]):
        pytest.fail("the block was run")
    assert started[0].returncode == -signal.SIGKILL


def test_a_group_that_is_killed_in_the_block():
    with started_group(["sleep", "10"]) as process:
        kill_group(process)
        kill_group(process)  # it has ended
    assert process.returncode == -signal.SIGKILL


def test_a_program_that_is_not_there():
    is_told = pytest.raises(BackendUnavailableError, match="cannot start no-such-program")
    with is_told, started_group(["no-such-program"]):
        pass


def test_a_start_that_takes_too_long_is_told_and_what_comes_is_killed(monkeypatch):
    came, real = [], subprocess.Popen

    def popen(*arguments, **options):
        time.sleep(0.5)
        came.append(real(*arguments, **options))
        return came[0]

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(process_group, "_START_S", 0.1)
    is_told = pytest.raises(BackendUnavailableError, match=r"sleep has not started in 0\.1 s")
    with is_told, started_group(["sleep", "10"]):
        pytest.fail("the block was run")
    end = time.monotonic() + 20
    while not (came and came[0].returncode) and time.monotonic() < end:
        time.sleep(0.02)
    assert came[0].returncode == -signal.SIGKILL


def test_a_signal_in_the_wait_after_the_block_ends_it(sigterm_raises):
    def wait_after_the_block():
        with started_group(["sleep", "10"]) as process:
            seen.append(process)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()

    seen = []
    with pytest.raises(SignalError):
        wait_after_the_block()
    assert seen[0].returncode == -signal.SIGKILL
