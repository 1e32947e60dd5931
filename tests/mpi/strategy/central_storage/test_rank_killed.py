"""Central storage when a rank is killed: looked at from outside, as a real program."""

import os
import time
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import RunningJob
from mpistrat.testing.sets import takes_long

ROOT = str(Path(mpistrat.__file__).parents[1])
ENV = {"PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}

# mpirun ends all ranks when one is killed, so what it started is only the parent of the rank.
KILLED = """
import os, signal, time
if os.fork():
    os.wait()
    time.sleep(60)
import numpy as np
import mpistrat as ms
strategy = ms.CentralStorageStrategy()
rank = strategy.extended.communicator.rank
with strategy.scope():
    variable = ms.Variable(np.zeros(1 << 20), aggregation=ms.VariableAggregation.SUM)
strategy.run(lambda: variable.assign_add(np.ones(1 << 20)))

def die(*_):
    if rank == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)

try:
    CALL
except Exception as error:
    print("seen", type(error).__name__, getattr(error, "rank", None), variable[0], flush=True)
time.sleep(60)
"""


@takes_long()
@pytest.mark.parametrize(
    ("victim", "call"),
    [
        (1, "die(), strategy.run(lambda: variable.assign_add(np.ones(1 << 20)))"),
        (0, "strategy.extended.update(variable, die)"),
        (0, "die(), variable.assign(np.ones(1 << 20))"),
    ],
    ids=["in replicas", "while it writes", "across"],
)
def test_a_killed_rank(victim, call):
    """The others hear of it at once, can read what they had, and nothing is left behind."""
    before = set(Path("/dev/shm").glob("mpistrat*"))
    program = KILLED.replace("VICTIM", str(victim)).replace("CALL", call)
    job = RunningJob(["-c", program], 3, env=ENV)
    try:
        others = [rank for rank in range(3) if rank != victim]
        for line in job.wait_for("seen", others):
            assert line.split() == ["seen", "PeerLostError", str(victim), "3.0"]
    finally:
        job.close()
    end = time.monotonic() + 20
    while set(Path("/dev/shm").glob("mpistrat*")) - before:  # other tests have some for a moment
        assert time.monotonic() < end
        time.sleep(0.05)
