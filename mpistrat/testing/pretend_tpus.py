"""TensorFlow's TPU strategy without a TPU: it is built, and traced, but runs no program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow import private_tpu
from mpistrat.tensorflow.tpu.assignment import topology_of

__all__ = ["PretendResolver", "initialized", "traced"]

_CORES = "/job:localhost/replica:0/task:0/device:TPU:{}"


class PretendResolver(tf.distribute.cluster_resolver.TPUClusterResolver):  # type: ignore[misc]
    """The resolver of a TPU of this machine that has some cores, as TensorFlow is told.

    Parameters
    ----------
    cores
        How many.
    """

    def __init__(self, cores: int = 2) -> None:
        super().__init__("local")
        self._cores = cores

    def get_tpu_system_metadata(self) -> Any:
        """Return what a TPU would say of itself."""
        names = [_CORES.format(i) for i in range(self._cores)]
        return tf.tpu.experimental.TPUSystemMetadata(
            num_cores=self._cores,
            num_hosts=1,
            num_of_cores_per_host=self._cores,
            topology=None,
            devices=[tf.config.LogicalDevice(name, "TPU") for name in names],
        )


@contextmanager
def initialized(mesh_shape: Sequence[int] = (1, 1, 1, 2)) -> Iterator[Any]:
    """Let TensorFlow believe that the TPU of this machine is initialized; return its topology."""
    known = private_tpu.initialized_tpus()
    known["local"] = topology_of(mesh_shape)
    try:
        yield known["local"]
    finally:
        del known["local"]


def traced(function: Callable[..., Any], *args: Any) -> list[Any]:
    """Return the operations of a function that calls ``run``, with those of what it calls."""

    def program(*args: Any) -> Any:  # TensorFlow takes no lambda around a program
        return function(*args)

    made = tf.function(program, autograph=False).get_concrete_function(*args)
    graph = made.graph.as_graph_def()
    return [*graph.node, *(node for one in graph.library.function for node in one.node_def)]
