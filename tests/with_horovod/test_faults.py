"""Jobs whose ranks are in Horovod's hands when something goes wrong: nobody waits for ever."""

import json

import pytest

pytest.importorskip("horovod.tensorflow")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.deadline(150)

PROGRAM = """
import os, signal, sys, threading, time
import mpistrat.tensorflow as distribute
import tensorflow as tf

strategy = distribute.MirroredStrategy(cross_device_ops=distribute.HorovodAllReduce())
rank = strategy.extended.bridge.rank
reduce = lambda x: strategy.reduce("SUM", x, axis=None)
graph = tf.function(lambda x: reduce(x) + reduce(x))
graph(tf.ones([3]))
"""

SHUT_DOWN = """
import horovod.tensorflow as hvd
hvd.shutdown()
(graph if sys.argv[1] == "graph" else reduce)(tf.ones([3]))
"""


@takes_long()
@pytest.mark.parametrize("where", ["eager", "graph"])
def test_horovod_that_was_shut_down_is_our_error_on_all_ranks(where):
    result = run_job(["-c", PROGRAM + SHUT_DOWN, where], 2, 60)
    assert result.returncode != 0
    assert not result.timed_out, result.output
    for rank, output in enumerate(result.ranks):
        assert "CommunicationError: Horovod's transfer failed on rank" in output.stderr
        assert f"rank {rank}/2" in output.stderr


STOPPED = """
if rank == 1:  # all of it stops once the transfer has begun, Horovod's thread too
    gates = strategy.extended.bridge._operations._gates
    hand_over = gates.hand_over

    def stop(*arguments):
        hand_over(*arguments)
        os.kill(os.getpid(), signal.SIGSTOP)

    gates.hand_over = stop
graph(tf.ones([1 << 20]))
"""


@takes_long()
def test_a_rank_that_stops_in_a_transfer_is_named_and_the_job_ends():
    env = {"MPISTRAT_TIMEOUT": "4", "MPISTRAT_GRACE": "2"}
    result = run_job(["-c", PROGRAM + STOPPED], 2, 60, env=env)
    assert not result.timed_out, result.output
    assert result.returncode != 0
    assert "in Horovod's transfer: " in result.ranks[0].stderr
    assert "ranks that did not come: 1" in result.ranks[0].stderr


KILLED = """
if rank == 1:
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGKILL]).start()
while True:
    graph(tf.ones([1 << 20]))
"""


def test_a_rank_that_is_killed_ends_the_job():
    result = run_job(["-c", PROGRAM + KILLED], 2, 60)
    assert not result.timed_out, result.output
    assert result.returncode != 0
    assert result.duration_s < 50, result.output


ENDS_ALONE = """
if rank == 1:
    raise RuntimeError("rank 1 said so")
graph(tf.ones([3]))
"""


@takes_long()
def test_an_error_of_one_rank_is_told_to_the_others():
    result = run_job(["-c", PROGRAM + ENDS_ALONE], 2, 60)
    assert not result.timed_out, result.output
    assert "rank 1 said so" in result.ranks[0].stderr
    assert "PeerLostError" in result.ranks[0].stderr


@takes_long()
def test_the_timeline_has_the_phases_of_horovod(tmp_path):
    file = tmp_path / "run.json"
    run_job(["-c", PROGRAM], 2, 60, env={"MPISTRAT_TIMELINE": str(file)}).check()
    events = json.loads(file.read_text())
    ours = [one for one in events if one.get("args", {}).get("label", "") and one["ph"] == "X"]
    ours = [one for one in ours if "by Horovod" in one["args"]["label"]]
    (horovod,) = (one["pid"] for one in events if one.get("args", {}).get("name") == "Horovod")
    phases = [one for one in events if one["pid"] == horovod and "ts" in one]
    assert any("MPI_ALLREDUCE" in one.get("name", "") for one in phases)
    start, end = min(one["ts"] for one in ours), max(one["ts"] + one["dur"] for one in ours)
    assert all(start - 1e4 < one["ts"] < end + 1e4 for one in phases)
