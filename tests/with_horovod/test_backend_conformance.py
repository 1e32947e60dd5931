"""Horovod as a backend of arrays, on a job of three ranks and on the first one and two of them."""

import pytest

pytest.importorskip("horovod.tensorflow")

from helpers.tf.process import four_cpus
from mpistrat.testing.backends.conformance import BackendConformance, job_communicator, run_body
from mpistrat.testing.backends.samples import DTYPES_BY_SIZE
from mpistrat.testing.sets import takes_long

four_cpus()  # as the other files, whose tests may run in the same process


@takes_long()
@pytest.mark.mpi(ranks=3)
class TestHorovod(BackendConformance):
    moved_dtypes = DTYPES_BY_SIZE

    def run(self, size, body):
        with job_communicator(size) as comm:
            if comm is not None:
                run_body(comm, "horovod", body)
