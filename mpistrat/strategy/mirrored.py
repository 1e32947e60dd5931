"""`MirroredStrategy`: a replica on every device of every rank, kept in sync."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpistrat.collectives import Communicator
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.extended import StrategyExtended
from mpistrat.strategy.parameter_server.worker_context import refuse_collective
from mpistrat.strategy.reduction.cross_device_ops import CrossDeviceOps, check_cross_device_ops
from mpistrat.strategy.replicas.devices import devices_of_ranks

__all__ = ["MirroredStrategy"]


class MirroredStrategy(Strategy):
    """Replicas on all ranks, each with a copy of every variable, updated together.

    Parameters
    ----------
    devices
        This rank's devices, one replica each, such as ``["CPU:0", "CPU:1"]`` or ``["GPU:0"]``, the
        first GPU that this rank can see. Default: the GPUs bound to this rank, which are its
        share of the node's or those that the launcher lets it see; one CPU where no rank sees a
        GPU, or CuPy is not installed.
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
    BackendUnavailableError
        A GPU is not there, or CuPy to use it.
    ClusterError
        Launcher and MPI do not fit together, or ranks run different versions; or the ranks of a
        node see its GPUs neither alike nor one each, and `devices` does not name them.

    Notes
    -----
    **Collective** over `comm`.

    On GPUs variables, batches and what collectives return are arrays of CuPy on the GPU of their
    replica, and across replicas on that of this rank's first replica, which the strategy makes
    the current one of the thread that makes it. Where only some ranks have GPUs, values are
    combined on the host. docs/gpu.md says what has run on hardware.

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
        placed = devices_of_ranks(communicator, devices)
        self._extended = StrategyExtended(self, communicator, placed, cross_device_ops)
