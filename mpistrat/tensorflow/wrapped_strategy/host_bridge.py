"""Collectives of tensors on another machine, where TensorFlow's worker has no MPI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from mpistrat.collectives import Communicator
from mpistrat.tensorflow.graph.bridge import Bridge
from mpistrat.tensorflow.graph.native_op import has_workers
from mpistrat.tensorflow.graph.same_variables.gradient_order import GradientList

__all__ = ["HostBridge"]

_HERE = "/job:localhost/replica:0/task:0/device:CPU:0"


class HostBridge(Bridge):
    """A bridge whose operations run in this process, whatever the current device is.

    A program that has connected to a cluster has a worker of it as its current device, where there
    is neither this process's Python nor our native operation: a function with that in it cannot
    even be sent there. All methods are **Collective**.
    """

    def __init__(self, communicator: Communicator, options: Any = None) -> None:
        self.is_native = not has_workers()
        super().__init__(communicator, options)

    def all_reduce(
        self,
        tensors: Sequence[tf.Tensor],
        op: str = "sum",
        gradient_list: GradientList | None = None,
    ) -> list[tf.Tensor]:
        """See `Bridge`."""
        return self._here(lambda: super(HostBridge, self).all_reduce(tensors, op, gradient_list))

    def all_gather(
        self, tensor: tf.Tensor, axis: int = 0, made_for: str | None = None
    ) -> tf.Tensor:
        """See `Bridge`."""
        return self._here(lambda: [super(HostBridge, self).all_gather(tensor, axis, made_for)])[0]

    def broadcast_value(self, tensor: tf.Tensor) -> tf.Tensor:
        """See `Bridge`."""
        return self._here(lambda: [super(HostBridge, self).broadcast_value(tensor)])[0]

    def broadcast_first(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """See `Bridge`."""
        return self._here(lambda: [super(HostBridge, self).broadcast_first(tensor, name)])[0]

    def _here(self, call: Callable[[], list[tf.Tensor]]) -> list[tf.Tensor]:
        with tf.device(_HERE):
            results = call()
        if self.is_native or tf.executing_eagerly():
            return results
        # A function that a worker runs cannot return what is here, and returns what it is told.
        # That worker is the current device outside of the function, to which init_scope leads.
        with tf.init_scope():
            caller = tf.zeros([]).device
        with tf.device(caller):
            return [tf.identity(one) for one in results]
