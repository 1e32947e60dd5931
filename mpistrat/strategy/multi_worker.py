"""`MultiWorkerMirroredStrategy`: the mirrored strategy with a cluster resolver."""

from __future__ import annotations

from typing import Any

from mpistrat.cluster.resolvers.base import ClusterResolver
from mpistrat.cluster.resolvers.mpi import resolver_of
from mpistrat.collectives import Communicator
from mpistrat.errors import ArgumentTypeError
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.extended import StrategyExtended
from mpistrat.strategy.parameter_server.worker_context import refuse_collective
from mpistrat.strategy.reduction.communication_options import CommunicationOptions
from mpistrat.strategy.replicas.devices import devices_of_ranks

__all__ = ["MultiWorkerMirroredStrategy"]


class MultiWorkerMirroredStrategy(Strategy):
    """As `MirroredStrategy`, with the roles of the ranks in ``cluster_resolver``.

    Parameters
    ----------
    cluster_resolver
        Says this rank's role; default the ranks of `comm`, all of them workers, or TF_CONFIG in
        a process that no launcher started. The ranks themselves are always MPI's.
    communication_options
        Deadline and bucket size of the collectives.
    devices, comm, backend
        As in `MirroredStrategy`.

    References
    ----------
    tf.distribute.MultiWorkerMirroredStrategy.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
        *,
        devices: list[str] | None = None,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        refuse_collective("a MultiWorkerMirroredStrategy", comm, is_local=True)
        communicator = Communicator(comm, backend)
        with communicator.checking():
            _check_options(communication_options)
        self._resolver = resolver_of(communicator.topology, cluster_resolver)
        placed = devices_of_ranks(communicator, devices)
        self._extended = StrategyExtended(
            self, communicator, placed, options=communication_options
        )

    @property
    def cluster_resolver(self) -> ClusterResolver:
        """The resolver of the job's roles."""
        return self._resolver


def _check_options(options: CommunicationOptions | None) -> None:
    if not isinstance(options, (CommunicationOptions, type(None))):
        raise ArgumentTypeError(
            f"communication_options={options!r} is a {type(options).__name__}; expected"
            " CommunicationOptions"
        )
