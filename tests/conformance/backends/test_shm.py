"""Shared memory, on a job of three ranks and on the first one and two of them."""

import pytest

from mpistrat.testing.backends.conformance import BackendConformance, job_communicator, run_body
from mpistrat.testing.backends.samples import DTYPES_BY_SIZE
from mpistrat.testing.sets import takes_long


@pytest.mark.mpi(ranks=3)
class TestShm(BackendConformance):
    sizes = (3,)
    moved_dtypes = DTYPES_BY_SIZE

    def run(self, size, body):
        with job_communicator(size) as comm:
            if comm is not None:
                run_body(comm, "shm", body)


@takes_long()
@pytest.mark.mpi(ranks=3)
class TestShmOnFirstRanks(TestShm):
    sizes = (1, 2)
