"""Programs with TensorFlow's parameter servers end well, or soon and with a reason.

Real programs under mpirun: their exit codes and what each rank wrote are looked at from outside.
"""

import os
import re
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import mpistrat
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import repeats, takes_long

pytestmark = pytest.mark.deadline(120)

TOLD = re.compile(r"^Traceback .*\n( .*\n)*\S.*\n", re.MULTILINE)  # with the error at its end
RANKS = 3  # a chief, a worker, a parameter server
PROGRAM = """
import os, signal, sys, tempfile
from pathlib import Path
import tensorflow as tf
import mpistrat.tensorflow as distribute
from mpistrat.cluster_resolver import MPIClusterResolver

resolver = MPIClusterResolver(num_ps=1)
if resolver.task_type != "chief":
    Path(os.environ["PIDS"], f"{{resolver.task_type}}{{resolver.task_id}}").write_text(
        str(os.getpid())
    )
    distribute.Server(resolver).join()
    print("served")
    sys.exit(0)
strategy = distribute.ParameterServerStrategy(resolver)
coordinator = distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)

@tf.function
def add(x):
    for _ in range(20):
        total.assign_add(x)
    return total.read_value()

def kill(task):
    os.kill(int(Path(os.environ["PIDS"], task).read_text()), signal.SIGKILL)

results = [coordinator.schedule(add, (tf.constant(1.0),)) for _ in range(20)]
{body}
"""


def run(body, folder, **env):
    """Run the program to its end, which it comes to by itself."""
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    env = {"PYTHONPATH": path, "PIDS": str(folder), **env}
    result = run_job(["-c", PROGRAM.format(body=body)], RANKS, 100.0, env=env)
    assert not result.timed_out, result.output
    return result


def check_failed(result, *words, ranks=range(1, RANKS), is_heard=False):
    """Check what ranks say; where mpirun ends them it may be before they said all of it."""
    assert result.returncode != 0, result.output
    for rank in ranks:
        text = result.ranks[rank].stderr
        if is_heard or TOLD.search(text):
            assert all(word in text for word in words), result.output


@takes_long()
def test_well_without_close_and_past_a_proxy(tmp_path):
    result = run(
        "coordinator.join(); print(total.numpy())", tmp_path, grpc_proxy="http://127.0.0.1:9"
    )
    assert result.check().ranks[0].stdout == "400.0\n"
    assert [one.stdout for one in result.ranks[1:]] == ["served\n"] * 2


@takes_long()
def test_an_exception_on_the_chief(tmp_path):
    result = run("raise KeyError('a mistake')", tmp_path)
    check_failed(result, "KeyError: 'a mistake'", ranks=[0], is_heard=True)
    words = "the chief (rank 0/3)", "KeyError: 'a mistake'"
    check_failed(result, *words, ranks=[1, 2], is_heard=True)


@takes_long()
def test_the_chief_is_killed(tmp_path):
    result = run("os.kill(os.getpid(), signal.SIGKILL)", tmp_path)
    check_failed(result, "cannot go on without the chief (rank 0/3)", "has ended")


@pytest.mark.parametrize(
    ("task", "name"),
    [("worker0", "worker 0 (rank 1/3)"), pytest.param("ps0", "ps 0", marks=repeats())],
)
@takes_long()
def test_another_rank_is_killed(task, name, tmp_path):
    """All ranks end, with its name; TensorFlow alone would wait for it to come back."""
    result = run(f"kill({task!r})\ncoordinator.join()", tmp_path)
    dead = {"worker0": 1, "ps0": 2}[task]
    others = [rank for rank in range(RANKS) if rank != dead]
    check_failed(result, "Error", ranks=others)
    check_failed(result, f"cannot go on without {name}", ranks=[3 - dead])
