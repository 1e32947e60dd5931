"""The making of a communicator, where a rank comes late, never, or is killed meanwhile."""

import os
import signal
from pathlib import Path

import pytest

import mpistrat
from mpistrat.testing.launcher import RunningJob, run_job
from mpistrat.testing.sets import takes_long

ROOT = Path(mpistrat.__file__).parents[1]
PATH = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])

# Pretended nodes of two ranks and one; rank 1 never comes to the division of the ranks by nodes.
DIVIDES = """
import time
from mpi4py import MPI
from mpistrat.collectives import Communicator
from mpistrat.collectives.backends import mpi
MPI.COMM_WORLD.barrier()
if MPI.COMM_WORLD.rank == 1:
    mpi.MpiBackend.split = lambda *arguments: time.sleep(60)
Communicator()
"""


@takes_long()
@pytest.mark.parametrize("level", [pytest.param("multiple", marks=takes_long()), "single"])
def test_a_division_by_nodes_has_a_deadline(level: str) -> None:
    env = {"PYTHONPATH": PATH, "MPISTRAT_NODE_SIZE": "2", "MPISTRAT_TIMEOUT": "2"}
    env |= {"MPI4PY_RC_THREAD_LEVEL": level, "MPISTRAT_GRACE": "1"}
    result = run_job(["-c", DIVIDES], 3, 40.0, env=env)
    assert not result.timed_out, result.output
    assert result.returncode != 0
    said = [rank.stderr for rank in (result.ranks[0], result.ranks[2])]
    text = "waited 2 s for all ranks to divide themselves by nodes"
    if level == "multiple":
        assert all(text in one for one in said), result.output
    else:  # the first process to end takes the job with it
        assert any(text in one for one in said), result.output


# mpirun ends all ranks when one is killed, so what it started is only the parent of the rank.
IS_KILLED = """
import os, time
if os.fork():
    os.wait()
    time.sleep(60)
from mpi4py import MPI
from mpistrat.collectives import Communicator
first = Communicator()
first.barrier()
print("begun", os.getpid(), flush=True)
if first.rank == 1:
    time.sleep(60)
try:
    Communicator()
except Exception as error:
    print(type(error).__name__, error.rank, error, sep="|", flush=True)
time.sleep(60)
"""


@takes_long()
def test_a_rank_that_is_killed_ends_the_making_of_another_communicator() -> None:
    job = RunningJob(["-c", IS_KILLED], 3, env={"PYTHONPATH": PATH})
    try:
        pids = [int(line.split()[1]) for line in job.wait_for("begun", timeout_s=20.0)]
        os.kill(pids[1], signal.SIGKILL)
        job.wait_for("PeerLostError|1|", [0, 2], 20.0)
        for rank in (0, 2):
            assert "cannot finish: the process of rank 1 has ended" in job.outputs()[rank].stdout
    finally:
        job.close()


RETRY = """
import sys, time
from mpi4py import MPI
from mpistrat.collectives import Communicator
from mpistrat.errors import CommunicationTimeoutError
rank, begin = MPI.COMM_WORLD.rank, time.monotonic()
time.sleep(0 if rank == 0 else 2.5)
try:
    Communicator()
except CommunicationTimeoutError:
    print("gave up", flush=True)
time.sleep(max(0, begin + 5.5 - time.monotonic()))
again = Communicator()
print(again.allreduce(1), flush=True)
again.close()
"""


def test_after_one_that_timed_out_the_next_is_made() -> None:
    env = {"PYTHONPATH": PATH, "MPISTRAT_TIMEOUT": "1.5"}
    result = run_job(["-c", RETRY], 3, 40.0, env=env)
    said = [rank.stdout.split("\n") for rank in result.ranks]
    assert all(lines[:2] == ["gave up", "3"] for lines in said), result


# What the ranks ask for is put in the place of ASKS. They end well if all have an error at once.
DIFFER = """
import os
from mpi4py import MPI
from mpistrat.collectives import Communicator
rank = MPI.COMM_WORLD.rank
ASKS
try:
    Communicator(backend=backend)
except Exception as error:
    print(type(error).__name__, error, sep="|", flush=True)
os.environ.pop("MPISTRAT_GRACE", None)
with Communicator() as comm:
    assert comm.allreduce(1) == comm.size
"""


def told(asks: str) -> list[str]:
    """Return what each of three ranks is told when it makes a communicator."""
    env = {"PYTHONPATH": PATH, "MPISTRAT_TIMEOUT": "30"}
    result = run_job(["-c", DIFFER.replace("ASKS", asks)], 3, 25.0, env=env).check()
    return [rank.stdout for rank in result.ranks]


def test_ranks_that_ask_for_different_backends() -> None:
    said = told("backend = 'mpi' if rank == 1 else 'auto'")
    expected = (
        "ClusterError|the ranks ask for different backends: 'auto' on ranks [0, 2]; 'mpi' on"
    )
    assert all(one.startswith(expected) for one in said), said


def test_a_backend_that_one_rank_does_not_know() -> None:
    said = told("backend = 'shmm' if rank == 1 else 'shm'")
    assert said[1].startswith("BackendNotFoundError|backend='shmm' is not known"), said
    for other in (said[0], said[2]):
        assert "MismatchError|" in other
        assert "rank 1: a call that it refused: BackendNotFoundError: backend='shmm'" in other


def test_a_setting_that_is_wrong_on_one_rank() -> None:
    said = told("backend = 'auto'\nif rank == 1: os.environ['MPISTRAT_GRACE'] = '-3'")
    assert said[1].startswith("UsageError|MPISTRAT_GRACE='-3'"), said
    for other in (said[0], said[2]):
        assert "rank 1: a call that it refused: UsageError: MPISTRAT_GRACE='-3'" in other
