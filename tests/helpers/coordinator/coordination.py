"""Run a test body on the chief of a job with parameter servers, on ranks or on threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from mpistrat.cluster.cluster_spec import ClusterSpec
from mpistrat.cluster.resolvers.base import ClusterResolver
from mpistrat.cluster.resolvers.mpi import MPIClusterResolver
from mpistrat.cluster.resolvers.simple import SimpleClusterResolver
from mpistrat.coordinator.cluster_coordinator import ClusterCoordinator
from mpistrat.coordinator.server import Server
from mpistrat.strategy.parameter_server.strategy import ParameterServerStrategy

__all__ = ["JOBS", "Cast", "on_chief", "on_jobs"]

_NODE_SIZE = "MPISTRAT_NODE_SIZE"


@dataclass(frozen=True)
class Cast:
    """Who plays: a chief, and so many workers and ps.

    A test with a parameter named ``layout`` runs on that many ranks, or with threads in the
    roles (see :mod:`mpistrat.testing.plugin`).

    Attributes
    ----------
    ranks
        1 for one process, else all members.
    workers, ps
        Their numbers.
    node_size
        How many ranks pretend to be a machine of their own; 0 for what is true.
    """

    ranks: int
    workers: int
    ps: int
    node_size: int = 0

    @property
    def takes_long(self) -> bool:
        """Whether tests on such a job do (`mpistrat.testing.sets`)."""
        return self.node_size > 0

    def resolver(self) -> ClusterResolver:
        """Return what says the role of this rank."""
        if self.ranks > 1:
            return MPIClusterResolver(num_ps=self.ps)
        jobs = {"chief": 1, "worker": self.workers, "ps": self.ps}
        spec = {job: [f"{job}{i}:1" for i in range(number)] for job, number in jobs.items()}
        return SimpleClusterResolver(ClusterSpec(spec), task_type="chief", task_id=0)

    def __str__(self) -> str:
        where = "threads" if self.ranks == 1 else "nodes" if self.node_size else "ranks"
        return f"{where}-{self.workers}w-{self.ps}ps"


JOBS = (Cast(1, 2, 2), Cast(5, 2, 2), Cast(5, 2, 2, node_size=2))
"""In one process, on ranks of one machine, and on ranks of three machines."""

on_jobs = pytest.mark.parametrize("layout", JOBS, ids=str)
"""Mark a test that runs on them."""


def on_chief(
    cast: Cast,
    variable_partitioner: Any = None,
    *,
    synchronous: bool = False,
    worker_devices: Any = None,
    **options: Any,
) -> Callable[[Callable[[ParameterServerStrategy, ClusterCoordinator], None]], None]:
    """Run the function below on the chief at once; on the other ranks serve it.

    It gets the strategy and its coordinator; `options` are the coordinator's. The job is over when
    it returns. `worker_devices` has those of each worker.
    """

    def play(body: Callable[[ParameterServerStrategy, ClusterCoordinator], None]) -> None:
        with _node_size(cast.node_size):
            resolver = cast.resolver()
            if resolver.task_type in ("worker", "ps"):
                Server(resolver, devices=_devices(resolver, worker_devices)).join()
                return
            here = worker_devices if cast.ranks == 1 else None
            with ParameterServerStrategy(
                resolver, variable_partitioner, synchronous=synchronous, worker_devices=here
            ) as strategy:
                body(strategy, ClusterCoordinator(strategy, **options))

    return play


def _devices(resolver: ClusterResolver, worker_devices: Any) -> Any:
    """Return the devices of this rank, if it is a worker."""
    if worker_devices is None or resolver.task_type != "worker":
        return None
    return worker_devices[resolver.task_id]


@contextmanager
def _node_size(ranks: int) -> Iterator[None]:
    """Let `ranks` pretend to be a machine of their own within the block."""
    before = os.environ.get(_NODE_SIZE)
    os.environ[_NODE_SIZE] = str(ranks)
    try:
        yield
    finally:
        del os.environ[_NODE_SIZE]
        if before is not None:
            os.environ[_NODE_SIZE] = before
