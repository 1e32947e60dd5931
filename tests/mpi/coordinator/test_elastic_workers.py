"""Workers that die under an MPI that outlives them: their functions run elsewhere.

Open MPI's ``mpirun --with-ft ulfm``; real programs, looked at from outside.
"""

import os
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import LauncherError, find_launcher, run_job
from mpistrat.testing.sets import takes_long

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import mpistrat as ms
from mpistrat.cluster_resolver import MPIClusterResolver
from mpistrat.coordinator import experimental_get_current_worker_index

resolver = MPIClusterResolver(num_ps=2)
if resolver.task_type in ("worker", "ps"):
    server = ms.Server(resolver)
    if os.environ.get("DIES") == f"{resolver.task_type}{resolver.task_id}":
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
    server.join()
    print(resolver.task_type, resolver.task_id, "is done")
    sys.exit(0)
strategy = ms.ParameterServerStrategy(resolver)
coordinator = ms.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    done = ms.Variable(np.zeros(300), name="done")
iterator = iter(coordinator.create_per_worker_dataset(lambda: iter(range(10**6))))

def mark(iterator, number):
    next(iterator)
    time.sleep(0.002)
    done.scatter_add(ms.IndexedSlices([1.0], [number]))
    return number

def all_marked(die=None):
    values = []
    done.assign(np.zeros(300))
    for number in range(300):
        if number == 100 and die is not None:
            coordinator.schedule(die)
        values.append(coordinator.schedule(mark, args=(iterator, number)))
    coordinator.join()
    assert coordinator.fetch(values) == list(range(300))
    counts = done.numpy()
    assert (counts >= 1).all() and counts.sum() <= 310, counts
"""
DEATHS = {
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "os._exit": "os._exit(3)",
    "an exit": "sys.exit('this worker leaves')",
}


def run(body, **env):
    try:
        if find_launcher().kind != "openmpi":
            pytest.skip("needs Open MPI, whose ULFM outlives ranks")
    except LauncherError as error:
        pytest.skip(str(error))
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path, **env}
    options = ["--with-ft", "ulfm"]
    result = run_job(["-c", PROGRAM + body], 5, 40.0, env=environment, options=options)
    assert not result.timed_out, result.output
    return result


@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS)
def test_a_workers_functions_run_on_others(death):
    """A function that ends its worker, the first time."""
    result = run(
        f"""
with strategy.scope():
    deaths = ms.Variable(0)

def die():
    if int(deaths) == 0:
        deaths.assign_add(1)
        int(deaths)  # it is on the ps now
        {death}

all_marked(die)
all_marked()
print("all is marked")
"""
    )
    chief, *others = result.ranks
    assert chief.stdout == "all is marked\n", result.output
    assert "its 1 functions run" in chief.stderr or "functions run on other" in chief.stderr
    survivors = [one.stdout for one in others if one.stdout]
    assert len(survivors) == 3, result.output
    assert all("is done" in text for text in survivors)
    assert result.returncode == (3 if "_exit" in death else 0), result.output


@takes_long()
def test_a_worker_dies_from_outside():
    result = run("all_marked()\nprint('all is marked')", DIES="worker1")
    assert result.ranks[0].stdout == "all is marked\n", result.output


@takes_long()
def test_a_function_that_ends_every_worker_is_stopped():
    result = run("coordinator.schedule(lambda: os._exit(3))\ncoordinator.join()")
    assert result.returncode != 0
    assert "has ended with <lambda> under way" in result.ranks[0].stderr, result.output


def test_a_ps_that_dies_ends_all_ranks():
    """What mpirun makes of it is its own: after a dead rank its status says little."""
    result = run("for _ in range(100):\n    all_marked()", DIES="ps1")
    for rank in (0, 1, 2, 3):
        assert "ps 1 (rank 4) has ended" in result.ranks[rank].stderr, result.output


@takes_long()
def test_a_chief_that_dies_ends_all_ranks():
    result = run("os.kill(os.getpid(), signal.SIGKILL)")
    for rank in (1, 2, 3, 4):
        assert "chief 0 (rank 0) has ended" in result.ranks[rank].stderr, result.output
