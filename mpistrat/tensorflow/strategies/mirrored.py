"""`MirroredStrategy`: a replica on every device of every rank, kept in sync."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.strategies.base import RankStrategy

__all__ = ["MirroredStrategy"]


class MirroredStrategy(RankStrategy):
    """Replicas on all ranks, each with a copy of every variable, updated together.

    Parameters
    ----------
    devices
        This rank's devices, one replica each, such as ``["CPU:0", "CPU:1"]``; default its GPUs,
        or its logical CPUs: one, unless the program has configured several.
    cross_device_ops
        How values are combined over this rank's devices; between ranks MPI carries them. A
        ``ReductionToOneDevice`` with an ``accumulation_fn`` has all replicas' values gathered
        for that function, where TensorFlow asks it: in ``ReplicaContext.all_reduce``, and for
        variables on GPUs.
    comm
        An mpi4py communicator (duplicated, never used itself); default COMM_WORLD, or this
        process alone if no launcher started it.
    backend
        Name of the carrier of collectives; ``"auto"`` picks one.

    Raises
    ------
    UsageError
        On all ranks: an argument is wrong, or ranks have unequal numbers of devices.
    ClusterError
        Launcher and MPI do not fit together, or ranks run different versions.

    Notes
    -----
    **Collective** over `comm`. TensorFlow's class of this name has the replicas of one process.

    References
    ----------
    tf.distribute.MirroredStrategy.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        cross_device_ops: tf.distribute.CrossDeviceOps | None = None,
        *,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        super().__init__(devices, cross_device_ops, comm=comm, backend=backend)

    def _default_devices(self) -> list[str]:
        """Return this process's GPUs, or all logical CPUs, as TensorFlow's class of this name."""
        found = super()._default_devices()
        (cpu,) = tf.config.list_physical_devices("CPU")
        configured = tf.config.get_logical_device_configuration(cpu) or [cpu]
        return found if "GPU" in found[0] else [f"CPU:{i}" for i in range(len(configured))]
