"""Collectives of tensors on GPUs, which stay there; `Bridge` has those of the host.

TensorFlow's memory goes to the communicator as arrays of CuPy, which its backend of GPUs combines
(mpistrat/collectives/backends/gpu). The operation does not block TensorFlow's threads, nor its
stream: a pack of gradients is reduced while backpropagation computes the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.tensorflow.graph import gpu_op
from mpistrat.tensorflow.graph.tensor_collective import Finish, SameShape
from mpistrat.types import Array

__all__ = ["GpuCollectives", "why_not"]

# TensorFlow has integers of 32 bits in memory of the host, also where their device is a GPU.
_NEVER = frozenset({tf.int32, tf.string, tf.resource, tf.variant})


class GpuCollectives:
    """The collectives of one strategy for tensors on GPUs. **Collective** if it is not said.

    Parameters
    ----------
    communicator
        The communicator of the strategy.
    gpu
        Of this rank's first replica.
    bytes_per_pack
        As of TensorFlow's ``CommunicationOptions``.
    timeout
        Seconds that a call may take; None for MPISTRAT_TIMEOUT.
    """

    def __init__(
        self, communicator: Communicator, gpu: str, bytes_per_pack: int, timeout: float | None
    ) -> None:
        self._communicator, self._gpu = communicator, gpu
        self._bytes_per_pack, self._timeout = bytes_per_pack, timeout
        self._reductions: dict[tuple[str, str | None], SameShape] = {}
        self._broadcast = SameShape(self._start_broadcast, timeout)

    def place_of(self, tensor: Any) -> str | None:
        """Return the GPU on which a dense tensor or variable is, None if on none. **Local.**

        In a graph it is the device that the tensor was made for; one that was made for none, as
        an argument of a function, is taken to the GPU of the first replica.
        """
        if tensor.dtype in _NEVER:
            return None
        name: str = getattr(tensor, "backing_device", None) or tensor.device or self._gpu
        return name if tf.DeviceSpec.from_string(name).device_type == "GPU" else None

    def all_reduce(
        self, tensors: Sequence[tf.Tensor], op: str, made_for: str | None
    ) -> list[tf.Tensor]:
        """Combine tensors on the GPU that is TensorFlow's current device, in one collective.

        Parameters
        ----------
        tensors
            Of equal shapes and dtypes on all ranks.
        op
            How they are combined.
        made_for
            The label of the call, as of `Communicator.labelled`.
        """
        key = op, made_for
        if key not in self._reductions:
            self._reductions[key] = SameShape(partial(self._start_reduction, *key), self._timeout)
        return self._reductions[key].on_gpu(tensors)

    def broadcast(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return rank 0's tensor, on the GPU that is TensorFlow's current device."""
        return self._broadcast.on_gpu([tensor])[0]

    def _start_reduction(
        self, op: str, made_for: str | None, sources: list[Any], results: list[Any]
    ) -> Finish:
        with self._communicator.labelled(made_for):
            return self._start(op, sources, results)

    def start_sum(self, sources: list[Any], results: list[Any]) -> Finish:
        """Begin a sum of arrays on GPUs, under the label that the communicator has now."""
        return self._start("sum", sources, results)

    def _start(self, op: str, sources: list[Any], results: list[Any]) -> Finish:
        communicator = self._communicator
        if len(sources) == 1:
            return communicator.iallreduce(sources[0], op, out=results[0]).wait
        pack = self._bytes_per_pack
        return communicator.iallreduce_many(sources, op, bucket_bytes=pack, out=results).wait

    def _start_broadcast(self, sources: list[Any], results: list[Any]) -> Finish:
        return self._communicator.ibcast(sources[0], out=results[0]).wait


def why_not(devices: Sequence[str]) -> str | None:
    """Return why tensors on these GPUs cannot be combined there; None if they can. **Local.**

    Each GPU is tried: what TensorFlow has written CuPy has to read, and the other way round.
    """
    reason = gpu_op.why_not()
    for device in devices if reason is None else ():
        try:
            with tf.init_scope(), tf.device(device):
                answer = SameShape(_answer, None).on_gpu([tf.constant(_ASKED)])[0].numpy()
        except Exception as error:  # noqa: BLE001 - whatever fails is why
            return f"CuPy cannot use TensorFlow's memory on {device} ({error})"
        if not np.array_equal(answer, _ANSWER):
            return f"CuPy does not find TensorFlow's tensors on {device} where they are"
    return reason


_ASKED, _ANSWER = np.arange(3.0), np.arange(5.0, 8.0)


def _answer(sources: list[Any], results: list[Any]) -> None:
    # In either case something: the memory may hold the answer to an earlier trial.
    results[0].set(_ANSWER if np.array_equal(_read(sources[0]), _ASKED) else _ASKED)


def _read(array: Any) -> Array:
    mine: Array = array.get()
    return mine
