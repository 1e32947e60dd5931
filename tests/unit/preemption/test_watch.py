"""A process that does not stop in time is ended, with a reason, whatever its main thread does."""

import os
import subprocess
import sys
import time

import pytest

from mpistrat.testing.sets import takes_long

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import mpistrat
from mpistrat.train import Checkpoint, CheckpointManager

manager = CheckpointManager(Checkpoint(value=np.zeros(3)), sys.argv[1], max_to_keep=2)
handler = mpistrat.PreemptionHandler(manager, lead_s=2)
handler.end_step()
print("ready", flush=True)
how = sys.argv[2]
if how == "sleeps":
    time.sleep(60)
if how == "waits":  # a system call, in which Python runs no handlers
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
if how == "stops":
    os.kill(os.getpid(), signal.SIGUSR1)
    while True:
        handler.end_step()
if how == "hangs at its end":
    handler.request_stop()
    try:
        handler.check()
    finally:
        time.sleep(60)
if how == "is done":
    os.kill(os.getpid(), signal.SIGUSR1)
    handler.close()
    time.sleep(3)
"""


def started(tmp_path, how):
    environment = {**os.environ, "MPISTRAT_OUTCOME_FILE": str(tmp_path / "outcome")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "checkpoints"), how],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def outcome(tmp_path):
    return (tmp_path / "outcome").read_text()


@takes_long()
@pytest.mark.parametrize("how", ["sleeps", "waits"])
@pytest.mark.parametrize("name", ["SIGUSR1", "SIGTERM"])
def test_one_that_never_comes_to_a_step(tmp_path, how, name):
    process, start = started(tmp_path, how), time.monotonic()
    time.sleep(0.2)
    process.send_signal(getattr(__import__("signal"), name))
    _, errors = process.communicate(timeout=30)
    assert process.returncode == os.EX_TEMPFAIL
    assert 1 <= time.monotonic() - start < 10
    assert outcome(tmp_path) == "REQUEUE\n"
    assert f"rank 0/1 has not stopped in time (1 s after {name})" in errors
    assert "is at <string>:" in errors


def test_one_that_stops_is_left_alone(tmp_path):
    process = started(tmp_path, "stops")
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, outcome(tmp_path)) == (0, "REQUEUE\n")
    assert "has not stopped" not in errors


@takes_long()
def test_one_that_hangs_after_its_stop_is_ended(tmp_path):
    process = started(tmp_path, "hangs at its end")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == os.EX_TEMPFAIL
    assert "has not stopped in time (1 s after a request to stop)" in errors


@takes_long()
def test_one_that_was_done_may_go_on(tmp_path):
    process = started(tmp_path, "is done")
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, outcome(tmp_path), errors) == (0, "DONE\n", "")
