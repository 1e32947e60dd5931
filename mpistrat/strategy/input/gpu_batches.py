"""Put the batches of replicas on their GPUs, ahead of their use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from mpistrat.collectives.arrays import gpu_devices, on_device
from mpistrat.collectives.arrays.conversion import can_be_sent
from mpistrat.collectives.backends.gpu.memory.pinned_upload import Upload, Uploader
from mpistrat.strategy.nest import flatten, map_nest
from mpistrat.types import Nest

__all__ = ["GpuBatches", "PendingBatch"]


class PendingBatch:
    """A batch on its way to a GPU.

    Attributes
    ----------
    host
        The batch on the host.
    """

    def __init__(self, host: Nest, uploader: Uploader) -> None:
        self.host = host
        self._leaves, self._structure = flatten(host)
        self._places = [i for i, leaf in enumerate(self._leaves) if _can_move(leaf)]
        self._upload: Upload = uploader.begin([self._leaves[i] for i in self._places])

    def take(self) -> Nest:
        """Return the batch with its arrays on the GPU, for the current stream."""
        leaves = list(self._leaves)
        for place, array in zip(self._places, self._upload.take(), strict=True):
            leaves[place] = array
        found: Nest = self._structure.unflatten(leaves)
        return found


class GpuBatches:
    """What puts the batches of one distributed data set on the GPUs of this rank's replicas.

    Parameters
    ----------
    gpus
        Index of each local replica's GPU; None for a replica on a CPU.

    Notes
    -----
    Numbers of the dtypes that collectives take move; other arrays, such as those of strings, stay
    on the host.
    """

    def __init__(self, gpus: Sequence[int | None]) -> None:
        self._uploaders = [None if gpu is None else Uploader(gpu) for gpu in gpus]
        self._gpus = tuple(gpus)

    def begin(self, missing: Any, step: list[Nest]) -> list[Nest]:
        """Begin to move the batches of a step, but `missing` ones; may be called in any thread."""
        return [
            batch if uploader is None or batch is missing else PendingBatch(batch, uploader)
            for uploader, batch in zip(self._uploaders, step, strict=True)
        ]

    def finish(self, step: list[Nest]) -> list[Nest]:
        """Return the batches on their devices, in the thread that uses them."""
        return [self._finished(gpu, one) for gpu, one in zip(self._gpus, step, strict=True)]

    @staticmethod
    def _finished(gpu: int | None, batch: Any) -> Nest:
        if isinstance(batch, PendingBatch):
            return batch.take()
        if gpu is None:
            return batch
        with gpu_devices.on_gpu(gpu):
            return map_nest(partial(_moved, on_device.placed), batch)


def _moved(move: Any, leaf: Any) -> Any:
    return move(leaf) if _can_move(leaf) else leaf


def _can_move(leaf: Any) -> bool:
    return isinstance(leaf, (np.ndarray, np.generic)) and can_be_sent(leaf.dtype)
