"""`BackendConformance`: the tests that every backend of collectives inherits.

A backend has to bring what `Backend` says, which moves data. The tests of refusals then run with
the control of MPI, or of threads, that it is given (collectives/backends/control.py).

A backend made elsewhere is tested by a class of some lines (see tests/conformance)::

    @pytest.mark.mpi(ranks=3)  # the test itself runs on every rank of an MPI job
    class TestMine(BackendConformance):
        def run(self, size, body):
            with job_communicator(size) as comm:
                if comm is not None:
                    run_body(comm, "mine", body)


    class TestOther(BackendConformance):  # ranks are threads
        def run(self, size, body):
            run_ranks(size, run_body, "other", body)

Expected values are closed forms, or double precision rounded once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mpistrat.testing.backends.arrays import ArrayCases
from mpistrat.testing.backends.asynchronous import AsyncCases
from mpistrat.testing.backends.cases import run_body
from mpistrat.testing.backends.chunks import ChunkCases
from mpistrat.testing.backends.movement import MovementCases
from mpistrat.testing.backends.reductions import ReductionCases
from mpistrat.testing.backends.refusals import RefusalCases

__all__ = ["BackendConformance", "job_communicator", "run_body"]


class BackendConformance(
    ReductionCases, MovementCases, ArrayCases, AsyncCases, RefusalCases, ChunkCases
):
    """All parts; give it ``run`` (see `BackendCases`), and ``sizes`` or ``dtypes`` if need be."""


@contextlib.contextmanager
def job_communicator(size: int) -> Iterator[Any]:
    """Yield an mpi4py communicator of the job's first `size` ranks; None on the others.

    **Collective** over the job, at the beginning and, where all went well, at the end.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.size < size:
        raise ValueError(f"a job of {world.size} ranks cannot test {size}; mark it ranks={size}")
    comm = world.Split(0 if world.rank < size else 1)
    yield comm if world.rank < size else None
    comm.Free()
