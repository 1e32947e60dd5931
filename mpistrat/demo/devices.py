"""Choose where the demo's replicas are: on CPUs, or on GPUs."""

from __future__ import annotations

from enum import Enum

import numpy as np

import mpistrat
from mpistrat.collectives.arrays import gpu_devices
from mpistrat.errors import BackendUnavailableError

__all__ = ["Device", "are_gpus", "strategy_on"]


class Device(str, Enum):
    """The values of the option ``--device``."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"


def strategy_on(
    device: Device, replicas: int | None, cross_device_ops: mpistrat.CrossDeviceOps | None = None
) -> mpistrat.MirroredStrategy:
    """Return a strategy with its replicas on CPUs or GPUs. **Collective**, the same on all ranks.

    Parameters
    ----------
    device
        What kind of device; AUTO: the GPUs bound to this rank, else a CPU.
    replicas
        How many on each rank: the first CPUs, or for GPU the first GPUs that the rank can see.
        None: one on each GPU bound to this rank, or on a CPU.
    cross_device_ops
        How values are combined over replicas.

    Raises
    ------
    BackendUnavailableError
        On all ranks: GPUs are wanted, and a rank has none, or no CuPy to use it.
    """
    devices = None
    if replicas is not None or device is Device.CPU:
        kind = "GPU" if device is Device.GPU else "CPU"
        devices = [f"{kind}:{index}" for index in range(replicas or 1)]
    strategy = mpistrat.MirroredStrategy(devices, cross_device_ops)
    if device is Device.GPU:
        _require_gpus(strategy)
    return strategy


def are_gpus(strategy: mpistrat.Strategy) -> bool:
    """Return whether the replicas of this rank are on GPUs. **Local.**"""
    return "GPU" in strategy.extended.worker_devices[0]


def _require_gpus(strategy: mpistrat.Strategy) -> None:
    """Raise on all ranks unless the replicas of all are on GPUs. **Collective.**"""
    lacking = np.flatnonzero(~strategy.communicator.allgather(np.array([are_gpus(strategy)])))
    if strategy.communicator.rank in lacking:
        gpu_devices.require(["GPU:0"])  # which says what is missing
    if lacking.size:
        raise BackendUnavailableError(f"ranks {lacking.tolist()} have no GPU; use --device cpu")
