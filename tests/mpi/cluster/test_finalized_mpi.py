"""MPI that the program has finalized, or not initialized: errors, and no end of the process."""

import pytest

from mpistrat.testing.launcher import run_job

FINALIZED = """
from mpi4py import MPI
import mpistrat
from mpistrat.errors import ClusterError, BackendUnavailableError
communicator = mpistrat.Communicator()
if {closes}:
    communicator.close()
MPI.Finalize()
for comm, kind in ((None, ClusterError), (MPI.COMM_WORLD, BackendUnavailableError)):
    try:
        mpistrat.Communicator(comm)
    except kind as error:
        print(error, flush=True)
"""

USED_AFTER = """
from mpi4py import MPI
import mpistrat
communicator = mpistrat.Communicator()
work = communicator.iallreduce(1.0)
work.wait()
MPI.Finalize()
for call in (lambda: communicator.allreduce(1.0), lambda: communicator.ibarrier().wait()):
    try:
        call()
    except mpistrat.errors.CommunicationError as error:
        print(error, flush=True)
communicator.close()
"""

NOT_INITIALIZED = """
import mpi4py
mpi4py.rc.initialize = False
import mpistrat
from mpistrat.errors import ClusterError
try:
    mpistrat.Communicator()
except ClusterError as error:
    print(error, flush=True)
"""


@pytest.mark.parametrize("closes", [True, False])
def test_finalized(closes):
    job = run_job(["-c", FINALIZED.format(closes=closes)], 2, 60)
    assert job.returncode == 0, job.output
    assert all(rank.stdout.count("MPI was finalized") == 2 for rank in job.ranks), job.output
    told = "called MPI.Finalize() while 1 communicators were open" in job.output
    assert told is not closes


@pytest.mark.parametrize("backend", ["auto", "mpi"])
def test_a_communicator_that_is_used_after_it(backend):
    job = run_job(["-c", USED_AFTER], 2, 60, env={"MPISTRAT_BACKEND": backend}).check()
    told = "/2 cannot be used here any more: the program called MPI.Finalize(): close strategies"
    assert all(rank.stdout.count(told) == 2 for rank in job.ranks), job.output


def test_not_initialized():
    job = run_job(["-c", NOT_INITIALIZED], 2, 60)
    assert job.returncode == 0, job.output
    assert all("MPI is not initialized" in rank.stdout for rank in job.ranks), job.output
