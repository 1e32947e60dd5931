"""The peer ``mpi4py``: the running MPI library's own blocking calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mpistrat import Communicator
from mpistrat.bench.harness.problem import Problem
from mpistrat.bench.peers.base import why_not
from mpistrat.cluster import mpi
from mpistrat.tables.reduction_ops import DTYPES

__all__ = ["MpiPeer"]

_OPS = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
_BIT_OPS = {"and": "BAND", "or": "BOR", "xor": "BXOR"}
_BOOL_OPS = {"sum": "LOR", "max": "LOR", "prod": "LAND", "min": "LAND"}
_BOOL_BIT_OPS = {"and": "LAND", "or": "LOR", "xor": "LXOR"}


class MpiPeer:
    """mpi4py on a duplicate of the world."""

    name = "mpi4py"
    takes_lists = False

    def missing(self) -> str | None:
        """See `Peer`."""
        if why := why_not("mpi4py.MPI"):
            return why
        return None if mpi.world() is not None else "no launcher started this process"

    def setup(self, communicator: Communicator) -> None:
        """See `Peer`."""
        del communicator
        # Not the world itself, on which mpistrat's own messages may be under way.
        self._comm = mpi.world().Dup()

    @property
    def comm(self) -> Any:
        """The duplicate, from `setup` to `teardown`."""
        return self._comm

    def function(self, problem: Problem) -> Callable[[], object] | None:
        """See `Peer`. MPI has no means, and no sums of half types."""
        from mpi4py import MPI

        task, send, recv, comm = problem.task, problem.send, problem.recv, self._comm
        if task.dtype.name not in DTYPES:
            return None
        # Only where the rank has a result: of a reduce the other ranks send as usual.
        given: Any = MPI.IN_PLACE if task.in_place and problem.recv is not None else send
        if task.is_reduction:
            names = _BOOL_OPS | _BOOL_BIT_OPS if task.dtype.kind == "b" else _OPS | _BIT_OPS
            if task.reduction not in names:
                return None
            op = getattr(MPI, names[task.reduction])
            calls: dict[str, Callable[[], object]] = {
                "allreduce": partial(comm.Allreduce, given, recv, op),
                "reduce": partial(comm.Reduce, given, recv, op, 0),
                "reduce_scatter": partial(comm.Reduce_scatter_block, given, recv, op),
            }
            return calls.get(task.op)
        calls = {
            "bcast": partial(comm.Bcast, recv, 0),
            "allgather": partial(comm.Allgather, send, recv),
            "gather": partial(comm.Gather, send, recv, 0),
            "scatter": partial(comm.Scatter, send, recv, 0),
            "alltoall": partial(comm.Alltoall, send, recv),
            "barrier": comm.Barrier,
        }
        return calls.get(task.op)

    def teardown(self) -> None:
        """See `Peer`."""
        self._comm.Free()
