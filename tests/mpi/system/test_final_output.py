"""Messages printed at a failure reach the launcher's output whole, however slow that is.

Here the ranks write to the launcher's pipes, not to files of their own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import find_launcher
from mpistrat.testing.sets import takes_long, with_all

pytestmark = [pytest.mark.deadline(180), takes_long()]

HEADER = """
import os, signal, subprocess, time
import numpy as np
import mpistrat as ms

strategy = ms.MirroredStrategy()
rank = strategy.extended.communicator.rank
"""
MISMATCH = "strategy.reduce('SUM', np.ones(rank + 1), axis=None)"
OTHERS = """
for _ in range(3):
    ms.MirroredStrategy().reduce("SUM", 1.0, axis=None)
"""
# The launcher's helper on this machine stands still from before the mismatch until 1 s after it.
SLOW = """
if rank == 0:
    pid = os.getppid()
    subprocess.Popen(
        ["sh", "-c", f"kill -STOP {pid}; sleep 1; kill -CONT {pid}"],
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    time.sleep(0.2)
strategy.extended.communicator.barrier()
"""
WHOLE = re.compile(
    r"^Traceback \(most recent call last\):\n(?:  .*\n)+"
    r"mpistrat\.errors\.MismatchError: Shape mismatch: the ranks called different collectives"
    r" \(seen on rank (\d)/3\):\n(?:  rank .*\n)+all ranks must .*\n",
    re.MULTILINE,
)
CALLS = re.compile(
    r"^\[mpistrat (\d)/3\] the last calls of this communicator:\n"
    r"(?:\[mpistrat \1/3\]   call .*\n)+",
    re.MULTILINE,
)


def printed(program: str) -> str:
    """Return what mpirun printed of a job of three ranks that has to fail."""
    launcher = find_launcher()
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    job = subprocess.run(
        [*launcher.command(3), sys.executable, "-c", HEADER + program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=launcher.environment() | {"PYTHONPATH": path},
        text=True,
        timeout=40,
        check=False,
    )
    assert job.returncode != 0, job.stdout
    return job.stdout


def check_all_is_there(text: str) -> None:
    assert sorted(WHOLE.findall(text)) == ["0", "1", "2"], text
    assert sorted(CALLS.findall(text)) == ["0", "1", "2"], text


def test_the_message_of_every_rank_arrives_whole() -> None:
    for _ in range(100 if with_all() else 3):
        check_all_is_there(printed(MISMATCH))


@pytest.mark.skipif(find_launcher().kind != "mpich", reason="is about MPICH's launcher")
def test_the_launcher_may_be_slow() -> None:
    for _ in range(4 if with_all() else 2):
        check_all_is_there(printed(SLOW + MISMATCH))


def test_only_the_communicator_that_failed_shows_its_last_calls() -> None:
    check_all_is_there(printed(OTHERS + MISMATCH))


def test_a_failure_outside_of_calls_shows_those_of_the_communicator_used_last() -> None:
    text = printed(OTHERS + "second = ms.MirroredStrategy()\nraise ValueError(rank)")
    assert sorted(re.findall(r"^ValueError: (\d)$", text, re.MULTILINE)) == ["0", "1", "2"], text
    assert sorted(CALLS.findall(text)) == ["0", "1", "2"], text
