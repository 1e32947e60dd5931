"""`MirroredStrategy`: a replica on every device of every rank, kept in sync."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpistrat.cluster.devices import local_devices
from mpistrat.collectives import Communicator
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.extended import StrategyExtended
from mpistrat.strategy.parameter_server.worker_context import refuse_collective
from mpistrat.strategy.reduction.cross_device_ops import CrossDeviceOps, check_cross_device_ops

__all__ = ["MirroredStrategy"]


class MirroredStrategy(Strategy):
    """Replicas on all ranks, each with a copy of every variable, updated together.

    Parameters
    ----------
    devices
        This rank's devices, one replica each, such as ``["CPU:0", "CPU:1"]``; default one.
    cross_device_ops
        How values are combined over replicas; default an all-reduce by the backend.
    comm
        An mpi4py communicator (duplicated, never used itself); default COMM_WORLD, or this
        process alone if no launcher started it.
    backend
        Name of the carrier of collectives; ``"auto"`` picks one.

    Raises
    ------
    UsageError
        A device string is wrong.
    ClusterError
        Launcher and MPI do not fit together, or ranks run different versions.

    Notes
    -----
    **Collective** over `comm`.

    References
    ----------
    tf.distribute.MirroredStrategy.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        *,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        refuse_collective("a MirroredStrategy", comm, is_local=True)
        communicator = Communicator(comm, backend)
        with communicator.checking():
            check_cross_device_ops(cross_device_ops)
            names = local_devices(devices, communicator.rank)
        self._extended = StrategyExtended(self, communicator, names, cross_device_ops)
