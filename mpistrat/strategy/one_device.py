"""`OneDeviceStrategy`: one replica on one device."""

from __future__ import annotations

from typing import Any

from mpistrat.cluster.devices.names import named_devices
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.collectives.single_process import single_process_communicator
from mpistrat.strategy.base import Strategy
from mpistrat.strategy.extended import StrategyExtended

__all__ = ["OneDeviceStrategy"]


class OneDeviceExtended(StrategyExtended):
    """Variables are plain ones."""

    mirrors_variables = False


class OneDeviceStrategy(Strategy):
    """Run everything on one device of this rank; the ranks have nothing to do with each other.

    Parameters
    ----------
    device
        Device string, such as ``"CPU:0"`` or ``"GPU:0"``, the first GPU that this rank can see.
        On a GPU variables and batches are arrays of CuPy there.
    comm, backend
        As in the other strategies; nothing is sent, so they are not used.

    References
    ----------
    tf.distribute.OneDeviceStrategy.
    """

    def __init__(self, device: str, *, comm: Any = None, backend: str = "auto") -> None:
        del comm, backend
        devices = named_devices([device], 0)
        gpu_devices.require(devices)
        self._extended = OneDeviceExtended(self, single_process_communicator(), [devices])
