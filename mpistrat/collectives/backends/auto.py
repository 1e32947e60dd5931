"""Choose the backend for ``backend="auto"``, from where the ranks are."""

from __future__ import annotations

from typing import Any

from mpistrat.cluster import mpi as cluster_mpi
from mpistrat.collectives.backends.base import Backend
from mpistrat.collectives.backends.hierarchical import HierarchicalBackend
from mpistrat.collectives.backends.mpi import MpiBackend
from mpistrat.collectives.backends.mpi_support.nodes import Nodes
from mpistrat.collectives.backends.shm import ShmBackend
from mpistrat.collectives.backends.threads import ThreadsBackend
from mpistrat.errors import BackendUnavailableError
from mpistrat.system.log import get_logger, warn_once

__all__ = ["Auto"]

_LOG = get_logger(__name__)


class Auto:
    """The best backend for the ranks at hand.

    On one machine shared memory; on several the same with rings of messages between them, also
    where each has one rank, since MPI's own reductions are slower; MPI where there are no kernels.
    """

    @classmethod
    def unavailable(cls, comm: Any) -> str | None:
        """Return None, since there always is one, but for what is no communicator."""
        if cluster_mpi.is_mpi_comm(comm):
            return MpiBackend.unavailable(comm)
        return ThreadsBackend.unavailable(comm) and MpiBackend.unavailable(comm)

    @classmethod
    def open(cls, comm: Any, timeout: float) -> Backend:
        """Open the best backend; the same on all ranks. **Collective.**"""
        if not cluster_mpi.is_mpi_comm(comm):
            return ThreadsBackend.open(comm, timeout)
        return cls.over(MpiBackend.open(comm, timeout), timeout)

    @classmethod
    def over(cls, mpi: MpiBackend, timeout: float) -> Backend:
        """Make the best backend of ranks that MPI has brought together. **Collective.**"""
        backend = cls._best(mpi, timeout)
        warn_once(_LOG, f"choice of {backend.name}", f"backend 'auto' is {backend.name!r}", "INFO")
        return backend

    @classmethod
    def _best(cls, mpi: MpiBackend, timeout: float) -> Backend:
        if mpi.size == 1:
            return mpi
        try:
            nodes = Nodes.find(mpi, timeout)
            if nodes.count > 1:
                return HierarchicalBackend.over(mpi, timeout, nodes)
            return ShmBackend.over(mpi, timeout)
        except BackendUnavailableError as error:
            warn_once(_LOG, "no shm", f"collectives use MPI alone: {error}")
            return mpi
