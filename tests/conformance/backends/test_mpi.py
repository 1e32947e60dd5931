"""MPI's own collectives, on a job of three ranks and on the first one and two of them."""

import pytest

from mpistrat.testing.backends.conformance import BackendConformance, job_communicator, run_body
from mpistrat.testing.backends.samples import DTYPES, DTYPES_BY_SIZE
from mpistrat.testing.sets import takes_long

SOME = ("bool", "int64", "bfloat16", "float32", "complex128")


@pytest.mark.mpi(ranks=3)
class TestMpi(BackendConformance):
    sizes = (3,)
    dtypes = SOME
    moved_dtypes = ("bool", "complex128")

    def run(self, size, body):
        with job_communicator(size) as comm:
            if comm is not None:
                run_body(comm, "mpi", body)


@takes_long()
@pytest.mark.mpi(ranks=3)
class TestMpiWithOtherDtypes(TestMpi):
    dtypes = tuple(name for name in DTYPES if name not in SOME)
    moved_dtypes = DTYPES_BY_SIZE


@takes_long()
@pytest.mark.mpi(ranks=3)
class TestMpiOnFirstRanks(TestMpi):
    sizes = (1, 2)
    dtypes = DTYPES
    moved_dtypes = DTYPES_BY_SIZE
