"""Build TensorFlow's TPU strategy without a TPU: its programs are traced, none is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from mpistrat.tensorflow.private import tpu as private_tpu
from mpistrat.tensorflow.tpu.assignment import topology_of

__all__ = ["PretendResolver", "initialized", "traced"]


class PretendResolver(tf.distribute.cluster_resolver.TPUClusterResolver):  # type: ignore[misc]
    """The resolver of a TPU that has some cores, as TensorFlow is told.

    Parameters
    ----------
    cores
        How many.
    tpu
        ``"local"`` or the addresses of workers, as of TPUClusterResolver.
    hosts
        How many machines have equal shares of them.
    """

    def __init__(self, cores: int = 2, tpu: str = "local", hosts: int = 1) -> None:
        super().__init__(tpu)
        self._cores, self._hosts = cores, hosts

    def get_tpu_system_metadata(self) -> Any:
        """Return what a TPU would say of itself."""
        job = "worker" if self.master() else "localhost"
        each = self._cores // self._hosts
        names = [
            f"/job:{job}/replica:0/task:{host}/device:TPU:{core}"
            for host in range(self._hosts)
            for core in range(each)
        ]
        return tf.tpu.experimental.TPUSystemMetadata(
            num_cores=self._cores,
            num_hosts=self._hosts,
            num_of_cores_per_host=each,
            topology=None,
            devices=[tf.config.LogicalDevice(name, "TPU") for name in names],
        )


@contextmanager
def initialized(
    mesh_shape: Sequence[int] = (1, 1, 1, 2), resolver: PretendResolver | None = None
) -> Iterator[Any]:
    """Let TensorFlow believe that a TPU, by default this machine's, is initialized.

    Return its topology.
    """
    known = private_tpu.initialized_tpus()
    name = "local" if resolver is None else private_tpu.name_of(resolver)
    known[name] = topology_of(mesh_shape)
    try:
        yield known[name]
    finally:
        del known[name]


def traced(function: Callable[..., Any], *args: Any) -> list[Any]:
    """Return the operations of a function that calls ``run``, with those of what it calls."""

    def program(*args: Any) -> Any:  # TensorFlow takes no lambda around a program
        return function(*args)

    made = tf.function(program, autograph=False).get_concrete_function(*args)
    graph = made.graph.as_graph_def()
    return [*graph.node, *(node for one in graph.library.function for node in one.node_def)]
