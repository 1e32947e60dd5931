"""`OneDeviceStrategy`: one replica on one device."""

from __future__ import annotations

from typing import Any

from mpistrat.cluster.devices import local_devices
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
        Device string, such as ``"CPU:0"``.
    comm, backend
        As in the other strategies; nothing is sent, so they are not used.

    References
    ----------
    tf.distribute.OneDeviceStrategy.
    """

    def __init__(self, device: str, *, comm: Any = None, backend: str = "auto") -> None:
        del comm, backend
        devices = local_devices([device], 0)
        alone = single_process_communicator()
        self._extended = OneDeviceExtended(self, alone, devices)
