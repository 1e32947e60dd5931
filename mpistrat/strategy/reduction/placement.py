"""`ReplicaPlacement`: the devices of a rank's replicas, and where it combines values."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpistrat.collectives.arrays import gpu_devices, on_device
from mpistrat.collectives.arrays.conversion import as_array, as_operand
from mpistrat.types import Array, ArrayLike

__all__ = ["HOST", "ReplicaPlacement", "placement_of"]


@dataclass(frozen=True)
class ReplicaPlacement:
    """Where the values of this rank's replicas are.

    Attributes
    ----------
    gpus
        Index of each local replica's GPU, as this rank sees them; None for a replica on a CPU.
    gpu
        The GPU on which this rank combines values; None for the host. It is the first replica's,
        unless the first replica of another rank is on a CPU: then all ranks combine on the host.
    """

    gpus: tuple[int | None, ...] = (None,)
    gpu: int | None = None

    def operand(self, value: ArrayLike) -> Array:
        """Return a value where this rank combines values: an array of CuPy, or of NumPy."""
        if self.gpu is None:
            return as_array(value)
        with gpu_devices.on_gpu(self.gpu):
            found: Array = on_device.placed(as_operand(value))
            return found

    def current(self) -> AbstractContextManager[Any]:
        """Make the GPU on which values are combined the current one in a block."""
        return nullcontext() if self.gpu is None else gpu_devices.on_gpu(self.gpu)

    def current_of(self, index: int) -> AbstractContextManager[Any]:
        """Make the GPU of a local replica the current one in a block."""
        gpu = self.gpus[index]
        return nullcontext() if gpu is None else gpu_devices.on_gpu(gpu)

    def copies(self, value: Array, count: int | None = None) -> list[Array]:
        """Return arrays of one content, none of them shared: the first may be `value` itself.

        Parameters
        ----------
        value
            The content.
        count
            How many; default one for each local replica. As many as there are replicas are on
            the replicas' devices, others on the first one's.
        """
        gpus = self.gpus if count in (None, len(self.gpus)) else self.gpus[:1] * (count or 1)
        return [_copy_on(gpu, value, is_first=not i) for i, gpu in enumerate(gpus)]


def _copy_on(gpu: int | None, value: Array, *, is_first: bool) -> Array:
    if gpu is not None:
        with gpu_devices.on_gpu(gpu):
            found: Array = on_device.placed(value)
            return found.copy() if found is value and not is_first else found
    found = value if isinstance(value, np.ndarray) else as_array(value)
    return found.copy() if found is value and not is_first else found


HOST = ReplicaPlacement()
"""Of a rank whose only replica is on a CPU."""


def placement_of(devices: Sequence[str], is_all_on_gpus: bool = True) -> ReplicaPlacement:
    """Return the placement of replicas on devices, given by their full names.

    Parameters
    ----------
    devices
        One for each local replica.
    is_all_on_gpus
        Whether the first replica of every rank is on a GPU.
    """
    gpus = tuple(map(gpu_devices.gpu_index, devices))
    return ReplicaPlacement(gpus, gpus[0] if is_all_on_gpus else None)
