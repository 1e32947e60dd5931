"""`CentralStorageStrategy`: variables once a rank, replicas on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpistrat.tensorflow.graph.bridge import Bridge
from mpistrat.tensorflow.strategies.base import RankStrategy
from mpistrat.tensorflow.strategies.central_extended import CentralExtended

__all__ = ["CentralStorageStrategy"]


class CentralStorageStrategy(RankStrategy):
    """Replicas on all ranks; a rank has each variable once, and all ranks' change together.

    Parameters
    ----------
    compute_devices
        This rank's devices, one replica each; default its GPUs, or one CPU.
    parameter_device
        Where its variables are; default its only GPU, or the CPU.
    comm, backend
        As of `MirroredStrategy`.

    Notes
    -----
    **Collective** over `comm`.

    References
    ----------
    tf.distribute.experimental.CentralStorageStrategy.
    """

    def __init__(
        self,
        compute_devices: Sequence[str] | None = None,
        parameter_device: str | None = None,
        *,
        comm: Any = None,
        backend: str = "auto",
    ) -> None:
        self._parameter_device = parameter_device
        super().__init__(compute_devices, comm=comm, backend=backend)

    def _make_extended(self, bridge: Bridge, devices: Sequence[str], **_: Any) -> Any:
        return CentralExtended(self, bridge, devices, self._parameter_device)
