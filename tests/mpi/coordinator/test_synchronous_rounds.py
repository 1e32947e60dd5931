"""Synchronous rounds whose workers hang or die: real programs, looked at from outside."""

import os
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import LauncherError, find_launcher, run_job
from mpistrat.testing.sets import repeats, takes_long

PROGRAM = """
import os, signal, sys, time
import numpy as np
import mpistrat as ms
from mpistrat.cluster_resolver import MPIClusterResolver
from mpistrat.coordinator import experimental_get_current_worker_index
from mpistrat.optimizers import SGD

resolver = MPIClusterResolver(num_ps=2)
if resolver.task_type in ("worker", "ps"):
    ms.Server(resolver).join()
    sys.exit(0)
strategy = ms.ParameterServerStrategy(resolver, synchronous=True)
coordinator = ms.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    variables = [ms.Variable(np.zeros(3)) for _ in range(2)]  # one on each ps
    deaths = ms.Variable(0)
optimizer = SGD(1.0)
optimizer.build(variables)

def step(number):
    seen = [float(v.numpy()[0]) for v in variables]
    optimizer.apply_gradients([(np.full(3, -1.0), v) for v in variables])
    if number == 21 and int(deaths) == 0:  # its gradients are given, but it has not finished
        deaths.assign_add(1)
        int(deaths)  # it is on the ps now
        leave()
    return seen

values = [coordinator.schedule(step, args=(number,)) for number in range(40)]
coordinator.join()
assert coordinator.fetch(values) == [[2.0 * (n // 2)] * 2 for n in range(40)]
assert [v.numpy().tolist() for v in variables] == [[40.0] * 3] * 2
assert optimizer.iterations == 20
print("all steps are right")
"""


def run(leave, *options, **env):
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    program = PROGRAM.replace("def step(", f"def leave():\n    {leave}\n\ndef step(")
    environment = {"PYTHONPATH": path, **env}
    result = run_job(["-c", program], 5, 40.0, env=environment, options=options)
    assert not result.timed_out, result.output
    return result


def skip_unless_mpi_outlives_ranks():
    try:
        if find_launcher().kind != "openmpi":
            pytest.skip("needs Open MPI, whose ULFM outlives ranks")
    except LauncherError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "leave",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        pytest.param("sys.exit('this worker leaves')", marks=repeats()),
    ],
)
def test_a_round_whose_worker_dies_goes_on_with_the_others_and_counts_once(leave):
    skip_unless_mpi_outlives_ranks()
    result = run(leave, "--with-ft", "ulfm")
    assert result.ranks[0].stdout == "all steps are right\n", result.output
    assert "worker 1 (rank 2) has ended" in result.ranks[0].stderr, result.output


UNEQUAL = """
import os, signal, sys
import numpy as np
import mpistrat as ms
from mpistrat.cluster_resolver import MPIClusterResolver
from mpistrat.coordinator import experimental_get_current_worker_index
from mpistrat.optimizers import SGD

resolver = MPIClusterResolver(num_ps=1)
if resolver.task_type == "ps":
    ms.Server(resolver).join()
elif resolver.task_type == "worker":
    count = (2, 1, 2)[resolver.task_id]
    ms.Server(resolver, devices=[f"CPU:{i}" for i in range(count)]).join()
if resolver.task_type != "chief":
    sys.exit(0)
strategy = ms.ParameterServerStrategy(resolver, synchronous=True)
coordinator = ms.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    v = ms.Variable(np.zeros(5))
optimizer = SGD(1.0)
optimizer.build([v])

def replica_fn():
    mine = np.zeros(5)
    mine[ms.get_replica_context().replica_id_in_sync_group] = -1.0
    optimizer.apply_gradients([(mine, v)])

def step(dies):
    if dies and experimental_get_current_worker_index() == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    strategy.run(replica_fn)

for number in range(4):
    for _ in range(3):
        coordinator.schedule(step, args=(number == 1,))
    coordinator.join()
print(v.numpy().tolist(), optimizer.iterations)
"""


@pytest.mark.parametrize("dies", [0, pytest.param(1, marks=repeats())])
def test_only_a_worker_with_as_many_replicas_stands_in_for_one(dies):
    skip_unless_mpi_outlives_ranks()
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    arguments, options = ["-c", UNEQUAL, str(dies)], ["--with-ft", "ulfm"]
    result = run_job(arguments, 5, 40.0, env={"PYTHONPATH": path}, options=options)
    assert not result.timed_out, result.output
    if dies == 0:
        assert result.ranks[0].stdout == "[4.0, 4.0, 4.0, 4.0, 4.0] 4\n", result.output
    else:
        words = "no worker that is left has 1 replicas as it had, for its share"
        assert words in result.ranks[0].stderr, result.output
        assert result.ranks[0].stdout == "", result.output


@takes_long()
def test_a_round_whose_worker_hangs_ends_with_an_error_that_names_it():
    result = run("time.sleep(1000)", MPISTRAT_TIMEOUT="2", MPISTRAT_GRACE="1.5")
    assert result.returncode != 0, result.output
    assert "worker 1 (rank 2) has been in function step for 2 s" in result.ranks[0].stderr, (
        result.output
    )


@takes_long()
def test_a_round_whose_worker_dies_ends_where_mpi_does_not_outlive_ranks():
    assert run("os.kill(os.getpid(), signal.SIGKILL)").returncode != 0
