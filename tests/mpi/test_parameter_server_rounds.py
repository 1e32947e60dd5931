"""Synchronous rounds whose workers hang or die: real programs, looked at from outside."""

import os
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import LauncherError, find_launcher, run_job
from mpistrat.testing.placement import takes_long

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


@pytest.mark.parametrize(
    "leave",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        pytest.param("sys.exit('this worker leaves')", marks=takes_long()),
    ],
)
def test_a_round_whose_worker_dies_goes_on_with_the_others_and_counts_once(leave):
    try:
        if find_launcher().kind != "openmpi":
            pytest.skip("needs Open MPI, whose ULFM outlives ranks")
    except LauncherError as error:
        pytest.skip(str(error))
    result = run(leave, "--with-ft", "ulfm")
    assert result.ranks[0].stdout == "all steps are right\n", result.output
    assert "worker 1 (rank 2) has ended" in result.ranks[0].stderr, result.output


@takes_long()
def test_a_round_whose_worker_hangs_ends_with_an_error_that_names_it():
    result = run("time.sleep(1000)", MPISTRAT_TIMEOUT="2")
    assert result.returncode != 0, result.output
    assert "worker 1 (rank 2) has been in function step for 2 s" in result.ranks[0].stderr, (
        result.output
    )


def test_a_round_whose_worker_dies_ends_where_mpi_does_not_outlive_ranks():
    assert run("os.kill(os.getpid(), signal.SIGKILL)").returncode != 0
