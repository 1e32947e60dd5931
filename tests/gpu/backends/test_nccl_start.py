"""NCCL that fails or hangs on one rank while its communicator is made: all ranks hear of it.

Real programs under mpirun, where NCCL waits for ever for a rank that does not come.
"""

import os
from pathlib import Path

import pytest

import mpistrat
from helpers.gpu.devices import needs_gpus
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

ROOT = Path(mpistrat.__file__).parents[1]
PATH = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
TIMEOUT_S = 4
ENDS_S = 60  # with the start of the programs, on a busy machine

PROGRAM = """
import logging, os, sys, time
import cupy, numpy as np
from cupy.cuda import nccl as real
from mpi4py import MPI
from mpistrat.collectives import Communicator
from mpistrat.collectives.backends.gpu.carriers import nccl
comm = Communicator(MPI.COMM_WORLD)
if comm.rank == 1:
    {happens}
with cupy.cuda.Device(comm.rank):
    start = time.monotonic()
    for _ in range(2):
        try:
            total = comm.allreduce(cupy.ones(3000, np.float32))
            print("sum", float(total.min().get()), sep="|", flush=True)
        except Exception as error:
            waited = time.monotonic() - start
            print(type(error).__name__, waited, error, sep="|", flush=True)
time.sleep(2)  # the launcher ends all ranks when the first one leaves
os._exit(0)  # a thread that waits in NCCL cannot be ended
"""

RAISES = """
    def refuse(*arguments):
        raise RuntimeError("no socket for NCCL")
    real.NcclCommunicator = refuse
"""
NO_LIBRARY = """
    def no_library(self):
        raise ImportError("libnccl.so.2: cannot open shared object file")
    nccl.Nccl.open = no_library
"""
NEVER_RETURNS = """
    make = real.NcclCommunicator
    def hang(*arguments):
        made = make(*arguments)
        time.sleep(600)
    real.NcclCommunicator = hang
"""


def what_the_ranks_saw(happens, carrier="auto"):
    """Run the program on three ranks; return the lines of each, in parts, and all it logged."""
    needs_gpus(3)
    env = {
        "PYTHONPATH": PATH,
        "MPISTRAT_GPU_CARRIER": carrier,
        "MPISTRAT_TIMEOUT": str(TIMEOUT_S if happens is NEVER_RETURNS else ENDS_S),
        "MPISTRAT_GRACE": "1",
        "PRETEND_NCCL_HANG": "1",
    }
    program = PROGRAM.format(happens=happens.strip())
    result = run_job(["-c", program], 3, timeout_s=ENDS_S, env=env)
    assert not result.timed_out, result
    ranks = [
        [line.split("|") for line in one.stdout.splitlines() if "|" in line]
        for one in result.ranks
    ]
    return ranks, result.output


@takes_long()
@pytest.mark.deadline(ENDS_S + 20)
@pytest.mark.parametrize(
    ("happens", "reason"),
    [(RAISES, "RuntimeError: no socket for NCCL"), (NO_LIBRARY, "ImportError: libnccl.so.2")],
    ids=["fails", "no library"],
)
def test_all_ranks_take_the_next_carrier(happens, reason):
    ranks, output = what_the_ranks_saw(happens)
    assert ranks == [[["sum", "3.0"]] * 2] * 3
    assert f"not by 'nccl': rank 1: {reason}" in output


@takes_long()
@pytest.mark.deadline(ENDS_S + 20)
def test_all_ranks_are_refused_where_nothing_else_may_carry():
    ranks, _ = what_the_ranks_saw(RAISES, "nccl")
    for lines in ranks:
        for error, _, message in lines:
            assert error == "BackendUnavailableError"
            assert "rank 1: RuntimeError: no socket for NCCL" in message


@takes_long()
@pytest.mark.deadline(ENDS_S + 20)
def test_an_initialisation_without_end_is_given_up():
    ranks, _ = what_the_ranks_saw(NEVER_RETURNS)
    for first, after in ranks:
        error, waited, message = first
        if error == "CommunicationTimeoutError":
            assert "NCCL's initialisation has not ended on ranks 1;" in message
        else:  # it has heard of a rank that gave up a moment before
            assert error == "PeerLostError"
        assert float(waited) < TIMEOUT_S + 4
        assert "the communicator is broken" in after[2]
    assert "CommunicationTimeoutError" in {first[0] for first, _ in ranks}
