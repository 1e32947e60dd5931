"""`MultiWorkerMirroredStrategy`: mirrored variables, with a cluster resolver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpistrat.cluster.resolvers.mpi import resolver_of
from mpistrat.tensorflow.graph.bridge import Bridge
from mpistrat.tensorflow.strategies.base import RankStrategy

__all__ = ["MultiWorkerMirroredStrategy"]


class MultiWorkerMirroredStrategy(RankStrategy):
    """Replicas on all ranks, each with a copy of every variable, updated together.

    Parameters
    ----------
    cluster_resolver
        Shown as `cluster_resolver`; default an `MPIClusterResolver`, or TF_CONFIG in a process
        that no launcher started. The ranks are the workers whatever it says: no addresses are
        needed.
    communication_options
        A ``tf.distribute.experimental.CommunicationOptions``: ``bytes_per_pack``,
        ``timeout_seconds``, and ``implementation``, where RING and AUTO leave it to the backend.
    comm, backend
        As of `MirroredStrategy`.

    Raises
    ------
    UsageError
        On all ranks: an argument is wrong.

    Notes
    -----
    **Collective** over `comm`.

    References
    ----------
    tf.distribute.MultiWorkerMirroredStrategy.
    """

    def __init__(
        self,
        cluster_resolver: Any = None,
        communication_options: Any = None,
        *,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        super().__init__(
            comm=comm,
            backend=backend,
            options=communication_options,
            cluster_resolver=cluster_resolver,
        )

    def _make_extended(
        self, bridge: Bridge, devices: Sequence[str], cluster_resolver: Any = None, **how: Any
    ) -> Any:
        resolver = resolver_of(bridge.communicator.topology, cluster_resolver)
        return super()._make_extended(bridge, devices, cluster_resolver=resolver, **how)
