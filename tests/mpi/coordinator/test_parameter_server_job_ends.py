"""Jobs with parameter servers that end, well or badly: real programs, looked at from outside."""

import os
from pathlib import Path

import pytest

import mpistrat
from helpers.strategy.failing_job import SOON_S, START_S
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import repeats, takes_long

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import mpistrat as ms
from mpistrat.cluster_resolver import MPIClusterResolver

resolver = MPIClusterResolver(num_ps=int(os.environ["SERVERS"]))
if os.environ.get("LEAVES") == f"{resolver.task_type}{resolver.task_id}":
    threading.Timer(0.3, os._exit, [int(os.environ["STATUS"])]).start()
if resolver.task_type in ("worker", "ps"):
    ms.Server(resolver).join()
    print(resolver.task_type, resolver.task_id, "is done")
    sys.exit(0)
strategy = ms.ParameterServerStrategy(resolver)
if "ALONE" in os.environ:
    with strategy.scope():
        v = ms.Variable(np.zeros(4))
    print(v.assign_add(np.ones(4)).numpy().tolist())
    exec(os.environ["ALONE"])
    sys.exit(0)
coordinator = ms.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    v = ms.Variable(np.zeros(4), name="v")

def add(x):
    v.assign_add(np.full(4, x))

def kill(number):
    if ms.coordinator.experimental_get_current_worker_index() == 1:
        os.kill(os.getpid(), number)
    time.sleep(1.0)  # so that worker 1 gets one, too

def leave():
    os._exit(3)

for i in range(100):
    coordinator.schedule(add, args=(1.0,))
"""


def run(body, ranks=3, **env):
    """Run a job of a worker and a ps on three ranks, else of two workers and the rest ps."""
    root = str(Path(mpistrat.__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path, "SERVERS": str(max(1, ranks - 3)), **env}
    result = run_job(["-c", PROGRAM + body], ranks, 40.0, env=environment)
    assert not result.timed_out, result.output
    assert result.duration_s < SOON_S + START_S, result.output
    return result


def check_failed(result, words, silent=()):
    """Check that the job failed, and that each rank but those that died says why."""
    assert result.returncode != 0, result.output
    for rank, output in enumerate(result.ranks):
        if rank not in silent:
            assert words in output.stderr, f"rank {rank} says nothing of it\n{result.output}"


@takes_long()
@pytest.mark.parametrize("close", ["", pytest.param("strategy.close()", marks=repeats())])
def test_at_the_end_of_the_chiefs_program_all_ranks_end_well(close):
    result = run("coordinator.join()\nprint(v.numpy().tolist())\n" + close, 5).check()
    assert result.ranks[0].stdout == "[100.0, 100.0, 100.0, 100.0]\n"
    roles = ["worker 0", "worker 1", "ps 0", "ps 1"]
    assert [one.stdout for one in result.ranks[1:]] == [f"{role} is done\n" for role in roles]
    assert not any(one.stderr for one in result.ranks), result.output


@pytest.mark.parametrize("node_size", ["0", pytest.param("2", marks=repeats())])
@pytest.mark.parametrize("close", ["strategy.close()", pytest.param("", marks=repeats())])
def test_a_strategy_without_a_coordinator_ends_its_workers_too(close, node_size):
    result = run("", ALONE=close, MPISTRAT_NODE_SIZE=node_size).check()
    assert result.ranks[0].stdout == "[1.0, 1.0, 1.0, 1.0]\n"
    assert result.ranks[1].stdout == "worker 0 is done\n"
    assert not any(one.stderr for one in result.ranks), result.output


@takes_long()
def test_a_worker_that_does_not_end_is_named_and_nobody_waits_for_it():
    body = "coordinator.join()\ncoordinator.schedule(time.sleep, args=(1000,))\nstrategy.close()"
    result = run(body, MPISTRAT_TIMEOUT="2", MPISTRAT_GRACE="1.5")
    check_failed(result, "worker 0 (rank 1) has been in function sleep", silent=(1,))


@takes_long()
def test_a_second_strategy_beside_an_open_one_says_what_nobody_comes_to():
    body = """
try:
    ms.ParameterServerStrategy(resolver)
except ms.errors.CommunicationTimeoutError as error:
    print(error)
os._exit(1)  # MPI has a communicator that only this rank has begun to make
"""
    result = run(body, MPISTRAT_TIMEOUT="7")
    words = "is still open, and the other ranks may be serving it: close() it before"
    assert words in result.ranks[0].stdout, result.output
    assert words in result.ranks[0].stderr, result.output  # a warning, long before the deadline


@takes_long()
@pytest.mark.parametrize("timeout_s", [2, 30], ids=["deadline", "ended rank"])
def test_without_servers_the_chief_says_what_others_have_to_call(timeout_s):
    program = """
import mpistrat as ms
resolver = ms.cluster_resolver.MPIClusterResolver(num_ps=1)
if resolver.task_type == "chief":
    ms.ParameterServerStrategy(resolver)
elif resolver.task_type == "ps":
    ms.Server(resolver).join()
"""
    root = str(Path(mpistrat.__file__).parents[1])
    environment = {"PYTHONPATH": root, "MPISTRAT_TIMEOUT": str(timeout_s)}
    result = run_job(["-c", program], 3, 40.0, env=environment)
    assert not result.timed_out, result.output
    check_failed(result, "while each other rank calls Server(resolver).join()", silent=(1,))


@takes_long()
def test_the_chief_need_not_join():
    run("print('over')").check()


@takes_long()
@pytest.mark.parametrize("node_size", ["0", pytest.param("2", marks=takes_long())])
def test_an_exception_of_the_chief_ends_all_ranks(node_size):
    result = run("raise RuntimeError('the chief said so')", 4, MPISTRAT_NODE_SIZE=node_size)
    check_failed(result, "the chief said so")


@takes_long()
def test_an_uncaught_error_of_a_function_ends_all_ranks():
    result = run("coordinator.schedule(lambda: 1 / 0)\ncoordinator.join()")
    check_failed(result, "ZeroDivisionError: division by zero")
    assert "CoordinatorError: function <lambda> failed on worker" in result.ranks[0].stderr


@takes_long()
def test_the_chief_leaves_without_a_word():
    """Some launchers end the whole job at once; nobody may hang."""
    assert run("coordinator.join()\nleave()").returncode != 0


@takes_long()
@pytest.mark.parametrize("how", [pytest.param("leave", marks=repeats()), "kill"])
def test_a_worker_dies(how):
    function = "leave" if how == "leave" else "kill, args=(signal.SIGKILL,)"
    body = f"coordinator.schedule({function})\n" * 2 + "coordinator.join()"
    result = run("coordinator.join()\n" + body, 4)
    assert result.returncode != 0


@pytest.mark.parametrize("status", ["0", pytest.param("3", marks=repeats())])
@pytest.mark.parametrize("member", [pytest.param("worker1", marks=repeats()), "ps0"])
def test_a_member_leaves_in_the_middle(member, status):
    """Most launchers then end the job at once; else every rank says whom it lost.

    MPICH's mpirun ends the other ranks by SIGKILL where one exits with status 0, and then exits
    with 0 itself, once in 20 jobs (of raw mpi4py, too): no exit status is expected there.
    """
    body = """
for i in range(100_000):
    coordinator.schedule(add, args=(1.0,))
coordinator.join()
time.sleep(10)
print("the end")
"""
    result = run(body, 4, LEAVES=member, STATUS=status)
    assert "the end" not in result.ranks[0].stdout
    assert result.returncode != 0 or status == "0"
