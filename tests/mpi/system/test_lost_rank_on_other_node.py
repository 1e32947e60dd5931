"""A rank of another node dies, and neither MPI nor mpirun reports it: the other ranks notice.

Ranks of one machine that pretend to be on several; real programs, looked at from outside.
"""

import os
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import RunningJob
from mpistrat.testing.sets import repeats

ROOT = str(Path(mpistrat.__file__).parents[1])
PATH = os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])
DETECTION_S = 4.0
# mpirun may end all ranks when one ends, so what it started is only the parent of the rank.
HEADER = """
import os, sys, time
if os.fork():
    os.wait()
    time.sleep(60)
import atexit, threading
import numpy as np

def end():
    print("ends", time.monotonic(), flush=True)
    os._exit(0)

def see(error):
    print("saw", time.monotonic(), type(error).__name__, error.rank, error, sep="|", flush=True)
    time.sleep(60)
"""
REDUCES = """
from mpistrat.collectives import Communicator
comm = Communicator(None, BACKEND)
array = np.ones(LENGTH, np.float32)
comm.barrier()
try:
    for number in range(10**6):
        comm.allreduce(array, "max", out=array)
        if comm.rank == VICTIM and number == 3:
            time.sleep(0.4)  # until the others wait
            end()
except Exception as error:
    see(error)
"""
SERVES = """
import mpistrat as ms
from mpistrat.cluster_resolver import MPIClusterResolver
resolver = MPIClusterResolver(num_ps=1)
me = f"{resolver.task_type}{resolver.task_id}"
try:
    if resolver.task_type != "chief":
        server = ms.Server(resolver)
        if me == VICTIM:
            threading.Timer(0.4, end).start()
        server.join()
    strategy = ms.ParameterServerStrategy(resolver)
    coordinator = ms.coordinator.ClusterCoordinator(strategy)
    if me == VICTIM:
        threading.Timer(0.4, end).start()
    for _ in range(3):
        coordinator.schedule(time.sleep, args=(2.0,))
    coordinator.join()
except Exception as error:
    see(error)
"""


def seen(program, ranks, node_size, watching):
    """Run a job in which a rank ends; return what each of `watching` says that it saw."""
    env = {"PYTHONPATH": PATH, "MPISTRAT_NODE_SIZE": str(node_size)}
    job = RunningJob(["-c", HEADER + program], ranks, env=env)
    try:
        job.wait_for("saw|", watching)
        lines = [line for out in job.outputs() for line in out.stdout.splitlines()]
        ended = next(float(line.split()[1]) for line in lines if line.startswith("ends"))
        found = [line.split("|", 4)[1:] for line in lines if line.startswith("saw|")]
        assert all(float(at) - ended < DETECTION_S for at, *_ in found), lines
        return [(name, int(rank), text) for _, name, rank, text in found]
    finally:
        job.close()


@pytest.mark.parametrize(
    ("ranks", "node_size", "victim", "backend", "length"),
    [
        (3, 1, 1, "auto", 8),
        pytest.param(4, 2, 3, "auto", 1 << 20, marks=repeats()),
        pytest.param(3, 1, 2, "mpi", 8, marks=repeats()),
        pytest.param(3, 0, 0, "mpi", 8, marks=repeats()),
    ],
)
def test_a_rank_that_ends_between_calls_is_lost_for_all(ranks, node_size, victim, backend, length):
    program = REDUCES.replace("VICTIM", str(victim)).replace("BACKEND", repr(backend))
    others = [rank for rank in range(ranks) if rank != victim]
    found = seen(program.replace("LENGTH", str(length)), ranks, node_size, others)
    assert [(name, rank) for name, rank, _ in found] == [("PeerLostError", victim)] * len(others)
    assert any(f"the process of rank {victim} has ended" in text for *_, text in found)


@pytest.mark.parametrize(
    ("victim", "watching", "words"),
    [
        ("worker0", [0], "worker 0 (rank 1) has ended"),
        pytest.param("ps0", [0], "ps 0 (rank 2) has ended", marks=repeats()),
        pytest.param("chief0", [2], "chief 0 (rank 0) has ended", marks=repeats()),
    ],
)
def test_a_member_on_another_machine_that_ends_is_named(victim, watching, words):
    found = seen(SERVES.replace("VICTIM", repr(victim)), 3, 1, watching)
    assert any(name == "PeerLostError" and words in text for name, _, text in found), found
