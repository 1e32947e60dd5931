"""Wrong kernels, lost devices, forks and ends of processes (runtime_programs/faults.py)."""

import re
import select
import signal
import time
from pathlib import Path

import pytest

from gpu.pretend.tests.runtime_job import outcome, run, started, why_not
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
PLACE = r"illegal access at address 0x[0-9a-f]+ by thread \(0, 0, 0\) of block \(0, 0, 0\)"


@pytest.mark.parametrize("function", ["past_an_end", "freed_memory", "memory_of_the_host"])
def test_wrong_addresses(function):
    """The device ends, and its process says which thread it was."""
    assert re.search(PLACE, run(f"faults.{function}"))


@pytest.mark.parametrize("function", ["memory_of_another_device", "peer_access_ends"])
def test_memory_of_another_device(function):
    assert re.search(PLACE, run(f"faults.{function}", PRETEND_GPUS="2"))


@takes_long()
def test_different_barriers():
    run("faults.different_barriers")


@takes_long()
def test_launch_bounds():
    output = run("faults.too_many_threads")
    assert "__launch_bounds__ of a kernel allows 32 threads a block, and it was" in output


def test_blocked_signals():
    assert re.search(PLACE, run("faults.blocked_signals"))


@takes_long()
def test_what_a_device_leaves():
    run("faults.no_core_file")
    run("faults.unloaded_modules")


def test_a_device_is_lost():
    run("faults.lost", PRETEND_LOST="0:3")


@takes_long()
def test_forked_children():
    run("faults.forks")


def test_signals():
    run("faults.signals_are_for_this_process")


def test_a_device_ends_with_its_process():
    """Also when that is killed in the middle of a kernel."""
    with started("faults.waits_to_be_killed") as process:
        try:
            ready, _, _ = select.select([process.stdout], [], [], 60)
            words = process.stdout.readline().split() if ready else ["nothing"]
        finally:
            process.send_signal(signal.SIGKILL)
    assert words[0] == "devices"
    (device,) = words[1:]
    end = time.monotonic() + 10
    while _runs(device):
        assert time.monotonic() < end, f"process {device} of the device is still there"
        time.sleep(0.01)


def _runs(process):
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


@takes_long()
def test_missing_functions():
    """They end the process by their name, or are an error of CuPy's."""
    code, output = outcome("faults.missing_function")
    assert code == -signal.SIGABRT
    assert "hipStreamBeginCapture does not exist here" in output
    run("faults.missing_function", PRETEND_MISSING="error")
